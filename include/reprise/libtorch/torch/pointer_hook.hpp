#pragma once
// The pointer hook is called when user code asks for a pointer to write through (data_ptr,
// accessor). LibTorch 2.13 has such a hook, older versions do not: user_access.hpp has the
// substitute.
//
//   set_pointer_hook(storage, &on_access);      tensor.data_ptr();      // calls on_access(&storage), once
//
// No other header asks whether this LibTorch has the hook.

#include <cstddef>
#include <cstdint>

#include <c10/core/StorageImpl.h>

#include <reprise/base/hash_bytes.hpp>
#include <reprise/base/one_per_process.hpp>

namespace reprise::tensors {

using PointerHook = void (*)(c10::StorageImpl*);

/// Whether this LibTorch reports pointer access.
template <class Impl = c10::StorageImpl>
inline constexpr bool can_watch_host = requires(Impl& storage) {
  storage.has_materializer();
  storage.clear_materializer();
};
/// And whether Reprise uses the hook. A test sets false to see the behaviour with an older
/// LibTorch.
REPRISE_ONE_PER_PROCESS inline bool& watches_host() {
  static bool watches = can_watch_host<>;
  return watches;
}

/// False if the storage has a hook already, or this LibTorch has none. A template, because a
/// LibTorch without the hook lacks these members.
template <class Impl>
[[nodiscard]] bool set_pointer_hook(Impl& storage, PointerHook on_access) {
  if constexpr (can_watch_host<Impl>) {
    if (!watches_host() || storage.has_materializer()) return false;
    storage.set_materializer(on_access);
    return true;
  } else {
    return false;
  }
}
template <class Impl>
void clear_pointer_hook(Impl& storage) {
  if constexpr (can_watch_host<Impl>) storage.clear_materializer();
}

/// Digest of the whole storage, including bytes that no tensor shows.
[[nodiscard]] inline std::uint64_t digest_of(const c10::StorageImpl& storage) {
  const auto* bytes = static_cast<const std::byte*>(
      const_cast<c10::StorageImpl&>(storage)._mutable_data_ptr_no_checks().get());
  return bytes == nullptr ? storage.nbytes() : hash_bytes({bytes, storage.nbytes()});
}

}  // namespace reprise::tensors
