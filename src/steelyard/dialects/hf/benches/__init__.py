"""The benches that every run has where the user's folder has none of their name; each is a bench file like any other."""
