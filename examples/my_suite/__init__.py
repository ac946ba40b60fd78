"""A suite of one's own: a model, its variants and its benchmarks, as OpenXLA's document has them."""
