"""Tests of the dialect of Hugging Face's benchmark_v2."""
