// Whoever takes a pointer is noticed, once.

#include <torch/torch.h>

#include <reprise_test/catch.hpp>

#include <reprise/libtorch/torch/pointer_hook.hpp>
#include <reprise_test/watched.hpp>

using namespace reprise::tensors;
using reprise::testing::AsOlderLibTorch;
using reprise::testing::is_watched;
using torch::Tensor;

namespace {

int pointers_taken = 0;
c10::StorageImpl* taken_from = nullptr;
void note(c10::StorageImpl* storage) {
  ++pointers_taken;
  taken_from = storage;
}

}  // namespace

TEST_CASE(
    "the hook is called when a pointer is taken, once, and only if LibTorch has such a hook") {
  const Tensor t = torch::ones({4});
  c10::StorageImpl& storage = *t.storage().unsafeGetStorageImpl();
  pointers_taken = 0;
  CHECK(set_pointer_hook(storage, note) == can_watch_host<>);
  CHECK(is_watched(t) == can_watch_host<>);
  CHECK_FALSE(set_pointer_hook(storage, note));  // it has one
  static_cast<void>(t.data_ptr<float>());
  static_cast<void>(t.data_ptr<float>());
  CHECK(pointers_taken == (can_watch_host<> ? 1 : 0));
  if (can_watch_host<>) CHECK(taken_from == &storage);
}

TEST_CASE("a hook that was cleared is not called") {
  const Tensor t = torch::ones({4});
  c10::StorageImpl& storage = *t.storage().unsafeGetStorageImpl();
  pointers_taken = 0;
  static_cast<void>(set_pointer_hook(storage, note));
  clear_pointer_hook(storage);
  CHECK_FALSE(is_watched(t));
  static_cast<void>(t.data_ptr<float>());
  CHECK(pointers_taken == 0);
}

TEST_CASE("as with an older LibTorch nobody is told") {
  const AsOlderLibTorch older;
  const Tensor t = torch::ones({4});
  CHECK_FALSE(set_pointer_hook(*t.storage().unsafeGetStorageImpl(), note));
  CHECK_FALSE(is_watched(t));
}

TEST_CASE("a storage's digest is of all its bytes") {
  Tensor t = torch::arange(16, torch::kFloat);
  const auto digest = [&] { return digest_of(*t.storage().unsafeGetStorageImpl()); };
  const std::uint64_t before = digest();
  CHECK(digest_of(*t.clone().storage().unsafeGetStorageImpl()) == before);
  t[15] = 0;
  CHECK(digest() != before);
  t[15] = 15;
  CHECK(digest() == before);
}
