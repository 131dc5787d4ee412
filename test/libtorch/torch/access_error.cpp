// An emptied storage refuses its pointer, and says why.

#include <torch/torch.h>

#include <reprise_test/catch.hpp>

#include <reprise/libtorch/torch/access_error.hpp>

using namespace reprise::tensors;
using torch::Tensor;

TEST_CASE("a guarded storage refuses a pointer with the words that it was given, until unguarded") {
  const Tensor t = torch::arange(4, torch::kFloat);
  c10::StorageImpl& storage = *t.storage().unsafeGetStorageImpl();
  c10::DataPtr bytes = std::exchange(storage._mutable_data_ptr_no_checks(),
                                     {nullptr, c10::Device(c10::DeviceType::CPU)});
  set_access_error(storage, "this tensor is elsewhere");
  if (storages_can_be_guarded) {
    CHECK_THROWS_WITH(t.data_ptr(), contains("this tensor is elsewhere"));
    CHECK_THROWS_WITH(t.storage().data_ptr(), contains("this tensor is elsewhere"));
  }
  clear_access_error(storage);
  storage.set_data_ptr_noswap(std::move(bytes));
  CHECK(t.data_ptr<float>()[3] == 3);
  CHECK(t.storage().data_ptr().get() == t.data_ptr());
}
