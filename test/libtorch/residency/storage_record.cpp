// The records of a step's storages.

#include <torch/torch.h>

#include <vector>

#include <reprise_test/catch.hpp>

#include <reprise/libtorch/residency/storage_record.hpp>

using namespace reprise;
using namespace reprise::cpu;
using namespace reprise::residency;
using torch::Tensor;

TEST_CASE("a storage is found again by its tensors, until it was forgotten", "[storage_record]") {
  StorageRecords records;
  Tensor a = torch::ones({4});
  const Tensor b = torch::ones({4});
  const c10::StorageImpl* const address = a.storage().unsafeGetStorageImpl();
  const StorageIndex s = records.add(a.storage()), t = records.add(b.storage());
  CHECK(records.size() == 2);
  CHECK(records.find(a.view({2, 2}).storage().unsafeGetStorageImpl()) == s);
  CHECK(records.find(b.storage().unsafeGetStorageImpl()) == t);
  CHECK(records.find(torch::ones({1}).storage().unsafeGetStorageImpl()) == no_storage);
  CHECK(records.alive(s));
  a.reset();
  CHECK_FALSE(records.alive(s));
  CHECK(records.lock(s) == nullptr);
  CHECK(records.find(address) == s);  // the address is not used again
  records.forget(s);
  CHECK(records.find(address) == no_storage);
  CHECK(records.alive(t));
}

TEST_CASE("a record keeps no memory", "[storage_record]") {
  StorageRecords records;
  const Bytes before = device_memory().live();
  Tensor a = torch::ones({1024});
  static_cast<void>(records.add(a.storage()));
  a.reset();
  CHECK(device_memory().live() == before);
}

TEST_CASE("what an emptied storage is given when it has died is released", "[storage_record]") {
  StorageRecords records;
  const Bytes before = device_memory().live();
  Tensor a = torch::ones({1024});
  const StorageIndex s = records.add(a.storage());
  c10::DataPtr bytes = records.empty(s);
  a.reset();
  CHECK_THROWS_WITH(records.empty(s), contains("has died"));
  CHECK(device_memory().live() > before);
  records.refill(s, std::move(bytes));
  bytes.clear();
  CHECK(device_memory().live() == before);
}

TEST_CASE("storages that lie in the same memory overlap", "[storage_record]") {
  StorageRecords records;
  std::vector<float> mine(16);
  const Tensor all = torch::from_blob(mine.data(), {16}),
               front = torch::from_blob(mine.data(), {8}),
               back = torch::from_blob(mine.data() + 8, {8}), none = torch::from_blob(nullptr, {0});
  std::vector<StorageIndex> s;
  for (const Tensor& t : {all, front, back, none}) s.push_back(records.add(t.storage()));
  CHECK(records.overlap(s[0], s[1]));
  CHECK(records.overlap(s[2], s[0]));
  CHECK_FALSE(records.overlap(s[1], s[2]));
  CHECK_FALSE(records.overlap(s[0], s[3]));
}

TEST_CASE("only memory of the counting allocator is ever taken") {
  float mine[4] = {1, 2, 3, 4};
  const auto blob = torch::from_blob(mine, {4});
  const auto ours = torch::ones({4});
  StorageRecords table;
  const StorageIndex foreign = table.add(blob.storage());
  const StorageIndex own = table.add(ours.storage());
  CHECK_THROWS_AS(table.empty(foreign), Error);
  const Bytes before = device_memory().live();
  c10::DataPtr taken = table.empty(own);
  CHECK_THROWS_AS(table.empty(own), Error);
  CHECK(ours.storage().data() == nullptr);
  table.refill(own, std::move(taken));
  CHECK_THROWS_AS(table.refill(own, c10::DataPtr()), Error);
  CHECK(ours.sum().item<float>() == 4);
  CHECK(device_memory().live() == before);
}
