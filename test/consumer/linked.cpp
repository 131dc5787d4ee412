// LibTorch's library and Reprise's allocator in one program, by headers that compile fast.

#include <iostream>

#include <ATen/ops/empty.h>

#include <reprise/libtorch/device/device.hpp>

int main() {
  const auto before = reprise::device_memory().live();
  const at::Tensor tensor = at::empty({1024}, at::kFloat);
  std::cout << (reprise::device_memory().live() - before).count
            << " bytes of LibTorch's are counted\n";
}
