"""A candidate for a cast."""


def _to_copy__default_kernel_impl(x, *, dtype, device):
    return x.to(dtype=dtype, device=device, copy=True)
