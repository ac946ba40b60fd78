"""Step 3: benchmarks, which are models with inputs: the model's own, a file known by its hash, seeded random numbers."""

from openxla.benchmark import def_types, testdata
from openxla.benchmark.comparative_suite import utils

from my_suite import model_definitions

TOLERANCE = {"absolute_tolerance": 1e-4}
PANGRAM = testdata.file_input(
    "PANGRAM", "my_suite/inputs/pangram.txt", sha256="7eb13ed99f416ee7eb2a3e2f95b6b0342e6d52bd25f5f55c65dad515da931a9c"
)
RANDOM = testdata.random_input("RANDOM_7", seed=7)
BATCH16 = model_definitions.BIGRAMS_FP32_PT_BATCHES[16]

ALL_BENCHMARKS = [
    *utils.build_batch_benchmark_cases(
        batch_models=model_definitions.BIGRAMS_FP32_PT_BATCHES, batch_sizes=[1, 16], verify_parameters=TOLERANCE
    ).values(),
    def_types.BenchmarkCase.build(model=BATCH16, input_data=PANGRAM, verify_parameters=TOLERANCE),
    def_types.BenchmarkCase.build(model=BATCH16, input_data=RANDOM, verify_parameters=TOLERANCE),
]
