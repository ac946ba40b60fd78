"""Step 2: variants of the base model, in several batch sizes from one template."""

from openxla.benchmark import def_types
from openxla.benchmark.comparative_suite import utils

BIGRAMS_PT_IMPL = def_types.ModelImplementation(
    name="BIGRAMS_PT",
    tags=["bigrams"],
    framework_type=def_types.ModelFrameworkType.PYTORCH,
    module_path="my_suite.models.bigrams",
)
BIGRAMS_FP32_PT_BATCHES = utils.build_batch_models(
    template=utils.ModelTemplate(
        name=utils.BATCH_NAME("BIGRAMS_FP32_PT"),
        tags=[utils.BATCH_TAG],
        model_impl=BIGRAMS_PT_IMPL,
        model_parameters={"batch_size": utils.BATCH_SIZE_PARAM, "data_type": "fp32"},
    ),
    batch_sizes=[1, 16],
)
ALL_MODELS = [*BIGRAMS_FP32_PT_BATCHES.values()]
