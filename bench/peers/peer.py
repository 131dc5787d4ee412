"""One variant of a training step in PyTorch, measured: time, allocator peak, and digests of loss, gradients and buffers, as one line of JSON.

    peer.py LIBRARY MODEL BATCH eager|checkpoint|budget:0.5|inductor:0.5 THREADS WARMUP STEPS

LIBRARY is the counting allocator; it must be there before the first tensor, and is checked on cases that are known. `kept_bytes` is what
is there between forward and backward and was not before the step: what the variant saved for backward.
"""

import ctypes
import json
import sys
import time
import warnings

warnings.filterwarnings("ignore")  # that there is no numpy

import torch  # noqa: E402

library, name, batch, variant = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
threads, warmup, steps = (int(each) for each in sys.argv[5:8])
count = ctypes.CDLL(library)
for function in (count.reprise_live, count.reprise_peak):
    function.restype = ctypes.c_longlong
count.reprise_digest.restype = ctypes.c_ulonglong
count.reprise_digest.argtypes = [ctypes.c_ulonglong, ctypes.c_void_p, ctypes.c_longlong]


def check_counting():
    """sqrt(exp(x)) of 4 MiB: x and exp's result are there before the third is made, and after it all three."""
    before = count.reprise_live()
    count.reprise_reset_peak()
    x = torch.zeros(1 << 20)
    y = x.exp().sqrt()
    seen = count.reprise_live() - before, count.reprise_peak() - before
    if seen != (8 << 20, 12 << 20):
        raise SystemExit(f"the counting allocator does not count: it saw {seen} bytes live and at most, not 8 and 12 MiB")
    del x, y
    if count.reprise_live() != before:
        raise SystemExit("the counting allocator does not see what is given back")


check_counting()

import models  # noqa: E402  (after the allocator)


# torch.compile up to its partitioner, LibTorch's own kernels op by op; or the whole of it, with generated code.
backends = {"budget": "aot_eager_decomp_partition", "inductor": "inductor"}

torch.set_num_threads(threads)
model, arguments = models.make(name, batch)
step = model
kind, _, share = variant.partition(":")
if kind == "checkpoint":
    from torch.utils.checkpoint import checkpoint

    model.call = lambda block, *inputs: checkpoint(block, *inputs, use_reentrant=False)
elif kind in backends:
    import torch._functorch.config

    torch._functorch.config.activation_memory_budget = float(share)
    step = torch.compile(model, backend=backends[kind])
elif kind != "eager":
    raise SystemExit(f"no variant '{variant}'")


def resident(field):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(field))


def digest(tensors):
    state = 14695981039346656037
    for tensor in tensors:
        plain = tensor.detach().contiguous()
        state = count.reprise_digest(state, plain.data_ptr(), plain.nbytes)
    return f"{state:x}"


got = {"seconds": [], "peak_bytes": 0, "resident_bytes": 0, "kept_bytes": 0, "bits": [], "gradient_bits": [], "losses": []}
for i in range(warmup + steps):  # the first ones compile
    torch.manual_seed(1 + i)
    model.zero_grad()
    count.reprise_reset_peak()
    with open("/proc/self/clear_refs", "w") as reset:
        reset.write("5")
    before, start = count.reprise_live(), time.perf_counter()
    loss = step(*arguments)
    kept = count.reprise_live() - before
    loss.backward()
    spent = time.perf_counter() - start
    peak, largest = count.reprise_peak(), resident("VmHWM:")
    results = [loss, *(p.grad for p in model.parameters() if p.grad is not None)]
    got["gradient_bits"].append(digest(results))
    got["bits"].append(digest([*results, *model.buffers()]))
    got["losses"].append(loss.item())
    del loss, results
    if i >= warmup:
        got["seconds"].append(spent)
        got["kept_bytes"] = kept
        got["peak_bytes"] = max(got["peak_bytes"], peak)
        got["resident_bytes"] = max(got["resident_bytes"], largest)
got["parameters"] = sum(p.numel() for p in model.parameters())
print(json.dumps(got))
