"""What the guide has its readers add to `string_to_config`, as a file of the user's."""

from steelyard import register_recipe


@register_recipe("my_new_quantization")
def my_new_quantization():
    """A config of torchao's that it has under another name."""
    from torchao.quantization import Int8WeightOnlyConfig

    return Int8WeightOnlyConfig(set_inductor_config=False)
