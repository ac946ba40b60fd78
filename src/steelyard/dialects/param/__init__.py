"""PARAM: operator benchmarks from configs of JSON."""

from steelyard.model.dialect import Dialect

DIALECT = Dialect(
    "param", "operators from PARAM's configs of JSON", config="steelyard.dialects.param.config", results="steelyard.dialects.param.results"
)
