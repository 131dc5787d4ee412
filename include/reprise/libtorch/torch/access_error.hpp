#pragma once
// set_access_error() makes a request for the pointer of an emptied storage throw an error with a
// text, if this LibTorch can do that.
//
//   set_access_error(storage, "this tensor was evicted; use it in an op");
//   tensor.data_ptr();            // throws, with these words
//   clear_access_error(storage);     // it has its memory again
//
// LibTorch can do that from the version on that can also remove the refusal. In older versions, the
// pointer is null. No other header asks for the version.

#include <string>
#include <utility>

#include <c10/core/StorageImpl.h>

#include <reprise/base/rooms.hpp>

namespace reprise::tensors {

// Templates, so that a member that a version lacks is not looked up.
template <class Storage>
concept Guardable = requires(Storage& storage) {
  storage.release_data_and_set_meta_custom_data_ptr_error_msg_(std::string{});
  storage.clear_data_ptr_access_error_msg_();
};
template <class Storage>
void guard(Storage& storage, std::string why) {
  if constexpr (Guardable<Storage>)
    storage.release_data_and_set_meta_custom_data_ptr_error_msg_(std::move(why));
}
template <class Storage>
void unguard(Storage& storage) {
  if constexpr (Guardable<Storage>) storage.clear_data_ptr_access_error_msg_();
}

/// Whether a request for the pointer of an emptied storage throws an error with a text.
inline constexpr bool storages_can_be_guarded = Guardable<c10::StorageImpl>;

inline void set_access_error(c10::StorageImpl& storage, std::string why) {
  guard(storage, std::move(why));
}
inline void clear_access_error(c10::StorageImpl& storage) { unguard(storage); }

}  // namespace reprise::tensors
