"""One variant of a training step in PyTorch, measured: time, allocator peak, and a digest of loss and gradients, as one line of JSON.

    peer.py LIBRARY MODEL BATCH eager|checkpoint|budget:0.5 THREADS STEPS

LIBRARY is the counting allocator; it must be there before the first tensor, and is checked on a tensor of known size.
"""

import ctypes
import hashlib
import json
import resource
import sys
import time

import torch

library, name, batch, variant, threads, steps = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5]), int(sys.argv[6])
count = ctypes.CDLL(library)
for function in (count.reprise_live, count.reprise_peak):
    function.restype = ctypes.c_longlong

before = count.reprise_live()
known = torch.empty(1 << 20)
if count.reprise_live() - before != 4 << 20:
    raise SystemExit("the counting allocator does not count: a tensor of 4 MiB was not seen")
del known

import models  # noqa: E402  (after the allocator)

torch.set_num_threads(threads)
model, arguments = models.make(name, batch)
step = model
if variant == "checkpoint":
    from torch.utils.checkpoint import checkpoint

    model.call = lambda block, *inputs: checkpoint(block, *inputs, use_reentrant=False)
elif variant.startswith("budget:"):
    # The partitioner ahead of time, without generated code: the kernels are LibTorch's own, as in the other variants.
    import torch._functorch.config

    torch._functorch.config.activation_memory_budget = float(variant.split(":")[1])
    step = torch.compile(model, backend="aot_eager_decomp_partition")


def bytes_of(tensor):
    plain = tensor.detach().contiguous()
    return ctypes.string_at(plain.data_ptr(), plain.nbytes)


seconds, peaks, bits = [], [], []
for i in range(steps + 1):  # the first warms up, and compiles
    torch.manual_seed(1 + i)
    model.zero_grad()
    count.reprise_reset_peak()
    start = time.perf_counter()
    loss = step(*arguments)
    loss.backward()
    spent = time.perf_counter() - start
    peak = count.reprise_peak()
    digest = hashlib.sha256(bytes_of(loss))
    for parameter in model.parameters():
        if parameter.grad is not None:
            digest.update(bytes_of(parameter.grad))
    del loss
    bits.append(digest.hexdigest()[:16])
    if i > 0:
        seconds.append(spent)
        peaks.append(peak)
print(json.dumps({"seconds": seconds, "peak_bytes": max(peaks), "bits": bits,
                  "resident_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))
