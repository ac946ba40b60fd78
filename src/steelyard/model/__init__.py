"""Plain data with only the standard library: the types that everything else works on."""
