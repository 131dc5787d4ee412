// What lies in an emptied storage, and who hears when it goes.

#include <torch/torch.h>

#include <vector>

#include <reprise_test/catch.hpp>

#include <reprise/libtorch/residency/tombstone.hpp>
#include <reprise_test/block_listener.hpp>

using namespace reprise;
using namespace reprise::residency;
using namespace reprise::tensors;
using namespace reprise::testing;
using torch::Tensor;

namespace {

struct Emptied {
  StorageRecords records{};
  NotingListener listener{};
  EmptiedStorages emptied{records, listener};
};

}  // namespace

TEST_CASE("a storage under a tombstone has no bytes, says why, and gets them again") {
  Emptied e;
  e.emptied.explain_errors("first look here: ", "; then there");
  const Tensor t = torch::arange(8, torch::kFloat), view = t.view({2, 4});
  const StorageIndex s = e.records.add(t.storage());
  c10::DataPtr bytes = e.emptied.replace_by_tombstone(s, "'t' was evicted");
  CHECK(e.records.emptied(s));
  CHECK(e.records[s].residency.tombstone != nullptr);
  if (storages_can_be_guarded)
    CHECK_THROWS_WITH(view.data_ptr(),
                      contains("first look here: 't' was evicted to stay inside Reprise's budget; "
                               "then there"));
  e.emptied.remove_tombstone(s, std::move(bytes));
  CHECK_FALSE(e.records.emptied(s));
  CHECK(e.records[s].residency.tombstone == nullptr);
  CHECK(view.sum().item<double>() == 28);
  CHECK(e.listener.emptied_deaths.empty());
}

TEST_CASE("the listener hears when the last tensor over an emptied storage dies") {
  Emptied e;
  e.listener.keeps_tombstones = GENERATE(false, true);
  Tensor t = torch::ones({8});
  const StorageIndex s = e.records.add(t.storage());
  const c10::DataPtr bytes = e.emptied.replace_by_tombstone(s, "'t' was evicted");
  Tombstone* const tombstone = e.records[s].residency.tombstone;
  t.reset();
  CHECK(e.listener.emptied_deaths == std::vector<StorageIndex>{s});
  if (!e.listener.keeps_tombstones) return;
  REQUIRE(e.listener.tombstones == std::vector<Tombstone*>{tombstone});
  CHECK(tombstone->listener == &e.listener);
  delete tombstone;
}

TEST_CASE("of a tombstone that was forgotten nobody hears") {
  Emptied e;
  Tensor t = torch::ones({8});
  const StorageIndex s = e.records.add(t.storage());
  const c10::DataPtr bytes = e.emptied.replace_by_tombstone(s, "'t' was evicted");
  e.emptied.forget_tombstone(s);
  e.emptied.forget_tombstone(s);
  t.reset();
  CHECK(e.listener.emptied_deaths.empty());
}
