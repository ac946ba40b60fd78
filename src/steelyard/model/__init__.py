"""Plain data, standard library only: the nouns everything else is a function of."""
