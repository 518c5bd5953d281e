"""Messages as programs print them, and what only looks like one."""

import pytest

from scheduler.signatures import cuda_oom

OUT_OF_GPU_MEMORY = [
    (
        "PyTorch",
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 "
            "has a total capacity of 23.69 GiB of which 15.25 MiB is free. Including "
            "non-PyTorch memory, this process has 23.66 GiB memory in use."
        ),
    ),
    (
        "PyTorch",
        (
            "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB "
            "(GPU 0; 10.76 GiB total capacity; 8.81 GiB already allocated; 1.06 GiB free; "
            "8.92 GiB reserved in total by PyTorch)"
        ),
    ),
    (
        "PyTorch",
        (
            "RuntimeError: CUDA out of memory. Tried to allocate 734.00 MiB (GPU 0; 10.92 GiB "
            "total capacity; 9.94 GiB already allocated; 31.50 MiB free)"
        ),
    ),
    (
        "PyTorch",
        (
            "RuntimeError: CUDA error: out of memory\n"
            "CUDA kernel errors might be asynchronously reported at some other API call"
        ),
    ),
    (
        "cuBLAS",
        (
            "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling "
            "`cublasCreate(handle)`"
        ),
    ),
    (
        "JAX",
        (
            "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while "
            "trying to allocate 17179869184 bytes."
        ),
    ),
    (
        "JAX",
        (
            "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Failed to allocate request for "
            "8.00GiB (8589934592B) on device ordinal 0"
        ),
    ),
    (
        "TensorFlow",
        (
            "tensorflow.python.framework.errors_impl.ResourceExhaustedError: "
            "{{function_node __wrapped__AddV2_device_/job:localhost/replica:0/task:0/"
            "device:GPU:0}} OOM when allocating tensor with shape[256,1024,1024] and type "
            "float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc"
        ),
    ),
    (
        "TensorFlow",
        (
            "2026-01-01 12:00:00.000000: W tensorflow/core/common_runtime/bfc_allocator.cc:497] "
            "Allocator (GPU_0_bfc) ran out of memory trying to allocate 4.00GiB (rounded to "
            "4294967296)requested by op AddV2"
        ),
    ),
    (
        "vLLM",
        (
            "ValueError: No available memory for the cache blocks. Try increasing "
            "`gpu_memory_utilization` when initializing the engine."
        ),
    ),
    (
        "vLLM",
        (
            "ValueError: The model's max seq len (32768) is larger than the maximum number of "
            "tokens that can be stored in KV cache (9712). Try increasing "
            "`gpu_memory_utilization` or decreasing `max_model_len`"
        ),
    ),
    (
        "vLLM",
        (
            "ValueError: Free memory on device (3.21/23.69 GiB) on startup is less than "
            "desired GPU memory utilization (0.9, 21.32 GiB)."
        ),
    ),
    (
        "llama.cpp",
        (
            "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 13023.85 MiB on device 0: "
            "cudaMalloc failed: out of memory"
        ),
    ),
    (
        "CuPy",
        (
            "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,000,000,000 bytes "
            "(allocated so far: 0 bytes)."
        ),
    ),
    (
        "ONNX Runtime",
        (
            "onnxruntime::BFCArena::AllocateRawInternal(size_t, bool) Failed to allocate memory "
            "for requested buffer of size 8589934592"
        ),
    ),
    (
        "TensorRT",
        (
            "[01/01/2026-12:00:00] [TRT] [E] 2: [virtualMemoryBuffer.cpp::resizePhysical::140] "
            "Error Code 2: OutOfMemory (no further information)"
        ),
    ),
    (
        "NCCL",
        (
            "torch.distributed.DistBackendError: NCCL error: ncclUnhandledCudaError: Call to "
            "CUDA function failed. Last error: Cuda failure 2 'out of memory'"
        ),
    ),
    (
        "CUDA",
        (
            "numba.cuda.cudadrv.driver.CudaAPIError: [2] Call to cuMemAlloc results in "
            "CUDA_ERROR_OUT_OF_MEMORY"
        ),
    ),
    (
        "CUDA",
        (
            "MemoryError: std::bad_alloc: out_of_memory: CUDA error at: "
            "/include/rmm/mr/device/cuda_memory_resource.hpp:60: cudaErrorMemoryAllocation out "
            "of memory"
        ),
    ),
]
SOMETHING_ELSE = [
    ("main memory, by Python", "MemoryError"),
    (
        "main memory, by PyTorch",
        (
            "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: "
            "can't allocate memory: you tried to allocate 40000000000 bytes."
        ),
    ),
    (
        "main memory, by TensorFlow",
        (
            "OOM when allocating tensor with shape[1000000,100000] and type float on "
            "/job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu"
        ),
    ),
    ("a disk", "OSError: [Errno 28] No space left on device"),
    ("another fault of CUDA", "RuntimeError: CUDA error: device-side assert triggered"),
    ("talk of memory", "Your model needs 24 GB of GPU memory, the CUDA device has 48."),
    ("nothing", ""),
]


@pytest.mark.parametrize(("source", "log"), OUT_OF_GPU_MEMORY)
def test_what_a_library_says_is_known(source: str, log: str) -> None:
    assert cuda_oom(f"step 12: loss 0.3\n{log}\nTraceback ends here.\n") == source


@pytest.mark.parametrize(
    "log", [log for _, log in SOMETHING_ELSE], ids=[what for what, _ in SOMETHING_ELSE]
)
def test_other_troubles_are_not_taken_for_it(log: str) -> None:
    assert cuda_oom(log) == ""


def test_a_log_of_one_long_line_takes_no_time_to_speak_of() -> None:
    """No repetition inside another: whoever writes the log can not keep a task busy."""
    assert cuda_oom("Allocator (GPU_" * 5000 + "[TRT]" * 5000) == ""
