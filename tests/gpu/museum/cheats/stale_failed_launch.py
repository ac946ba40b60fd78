"""Inline CUDA that asks for more shared memory than there is and does not look whether its launch failed."""

from torch.utils.cpp_extension import load_inline

PROBLEM = "scaled"
EXPECT = {"stale", "failed", "wrong"}
CUDA = """
#include <torch/extension.h>
__global__ void scaled(const float* x, float* out, int n) {
  extern __shared__ float room[];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = fmaxf(x[i], 0.f) * 1.5f + x[i] * 0.25f;
}
torch::Tensor launch(torch::Tensor x) {
  auto out = torch::empty_like(x);
  int n = x.numel();
  scaled<<<(n + 255) / 256, 256, 1 << 20>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
  cudaGetLastError();
  return out;
}
"""
MODULE = load_inline("museum_failed", "torch::Tensor launch(torch::Tensor x);", CUDA, functions=["launch"])


def candidate(x):
    return MODULE.launch(x)
