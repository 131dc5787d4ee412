#pragma once
// Whether a tensor's storage will tell when the host takes a pointer to it. Never, with a LibTorch
// that has no hook for it: a template, so that what is not there is not looked for.

#include <torch/types.h>

#include <reprise/libtorch/torch/pointer_hook.hpp>

namespace reprise::testing {

using namespace tensors;

template <class Impl>
[[nodiscard]] bool has_host_hook(Impl& storage) {
  if constexpr (can_watch_host<Impl>) return storage.has_materializer();
  else return false;
}

[[nodiscard]] inline bool is_watched(const torch::Tensor& tensor) {
  return has_host_hook(*tensor.storage().unsafeGetStorageImpl());
}

/// While it is in scope nobody is told when the host takes a pointer, as with LibTorch before 2.13.
struct AsOlderLibTorch {
  AsOlderLibTorch() { reprise::tensors::watches_host() = false; }
  ~AsOlderLibTorch() { reprise::tensors::watches_host() = reprise::tensors::can_watch_host<>; }
  AsOlderLibTorch(const AsOlderLibTorch&) = delete;
  AsOlderLibTorch& operator=(const AsOlderLibTorch&) = delete;
};

}  // namespace reprise::testing
