"""Inline CUDA that writes half of the elements."""

from torch.utils.cpp_extension import load_inline

PROBLEM = "scaled"
EXPECT = {"stale"}
CUDA = """
#include <torch/extension.h>
__global__ void scaled(const float* x, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = fmaxf(x[i], 0.f) * 1.5f + x[i] * 0.25f;
}
torch::Tensor launch(torch::Tensor x) {
  auto out = torch::empty_like(x);
  int n = x.numel() / 2;
  scaled<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
  return out;
}
"""
MODULE = load_inline("museum_half", "torch::Tensor launch(torch::Tensor x);", CUDA, functions=["launch"])


def candidate(x):
    return MODULE.launch(x)
