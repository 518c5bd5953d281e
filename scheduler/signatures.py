"""What programs say when a GPU's memory was not enough: pure.

Never proof alone: an ending is told so only of a program that also failed. The shapes
are those of the libraries' own sources, at the releases that the tests name.
"""

import re
from typing import NamedTuple


class Signature(NamedTuple):
    source: str
    shape: re.Pattern[str]


# Each is of one line, and none has a repetition inside another.
CUDA_OOM: tuple[Signature, ...] = tuple(
    Signature(source, re.compile(shape))
    for source, shape in (
        ("PyTorch", r"CUDA out of memory"),
        ("PyTorch", r"CUDA error: out of memory"),
        ("PyTorch", r"HIP out of memory"),
        ("cuBLAS", r"CUBLAS_STATUS_ALLOC_FAILED"),
        ("cuDNN", r"CUDNN_STATUS_ALLOC_FAILED"),
        ("JAX", r"RESOURCE_EXHAUSTED: (?:Out of memory|Failed to allocate)"),
        ("TensorFlow", r"OOM when allocating tensor[^\n]{0,400}device:GPU"),
        ("TensorFlow", r"Allocator \(GPU_[^\n]{0,40}\) ran out of memory"),
        ("vLLM", r"No available memory for the cache blocks"),
        (
            "vLLM",
            (
                r"larger than the (?:maximum number of tokens that can be stored in|"
                r"available) KV cache"
            ),
        ),
        ("vLLM", r"Free memory on device [^\n]{0,80}on startup is less than desired"),
        ("llama.cpp", r"cudaMalloc failed: out of memory"),
        ("CuPy", r"cupy\.cuda\.memory\.OutOfMemoryError"),
        ("ONNX Runtime", r"BFCArena[^\n]{0,200}Failed to allocate memory"),
        ("TensorRT", r"\[TRT\][^\n]{0,200}OutOfMemory"),
        ("NCCL", r"Cuda failure (?:2 )?'out of memory'"),
        ("CUDA", r"CUDA_ERROR_OUT_OF_MEMORY"),
        ("CUDA", r"cudaErrorMemoryAllocation"),
        ("CUDA", r"CUDA failure 2: out of memory"),
    )
)


def cuda_oom(log: str) -> str:
    """Which library said so; empty if none did."""
    for signature in CUDA_OOM:
        if signature.shape.search(log):
            return signature.source
    return ""
