// What user code does to a step's tensors behind the dispatcher.

#include <torch/torch.h>

#include <vector>

#include <reprise_test/catch.hpp>
#include <reprise_test/watched.hpp>

#include <reprise/libtorch/record/user_access.hpp>

using namespace reprise;
using namespace reprise::recording;
using namespace reprise::residency;
using namespace reprise::tensors;
using torch::Tensor;

namespace {

struct Hooks final : RecorderHooks {
  std::vector<StorageIndex> accesses{}, writes{};
  bool deals_with_it = true;
  bool host_access(StorageIndex s) override {
    accesses.push_back(s);
    return deals_with_it;
  }
  void host_wrote(StorageIndex s) override { writes.push_back(s); }
};

void unheard(c10::StorageImpl*) {}

struct Access {
  Hooks hooks{};
  RecordingTables tables{};
  UserAccess access{tables, &hooks, unheard};

  ~Access() { access.unwatch_all(); }
  StorageIndex make(const Tensor& t) {
    const StorageIndex s = tables.records().add(t.storage());
    tables.add_owner({.geometry = tables.recording().geometry_of(t), .producer = NodeId{0}}, s);
    return s;
  }
  StorageRecord::Contents& known(StorageIndex s) { return tables.contents(s); }
  [[nodiscard]] const std::string& refusal() const { return tables.recording().refusal; }
};

}  // namespace

TEST_CASE("a pointer that nobody deals with refuses the step, and names what made the tensor",
          "[user_access]") {
  const Tensor before = torch::ones({4});
  Access a;
  const ValueId v = a.tables.add_persistent(before, Origin::input, 0, Role::input, "input.0");
  c10::StorageImpl* const storage = before.storage().unsafeGetStorageImpl();
  a.access.note_pointer(storage);
  CHECK(a.hooks.accesses == std::vector<StorageIndex>{a.tables.storage_of(v)});
  CHECK(a.refusal().empty());
  a.hooks.deals_with_it = false;
  a.access.note_pointer(storage);
  CHECK_THAT(a.refusal(),
             contains("the host took a pointer to 'input.0' in the middle of the step"));
  const Tensor unknown = torch::ones({4});
  a.access.note_pointer(unknown.storage().unsafeGetStorageImpl());
  CHECK(a.hooks.accesses.size() == 2);
}

TEST_CASE("what user code writes into a factory's result becomes a constant of the recording",
          "[user_access]") {
  Access a;
  a.hooks.deals_with_it = false;
  const Tensor t = torch::zeros({4});
  const StorageIndex s = a.make(t);
  a.known(s).made_without_tensors = true;
  a.access.record_user_writes(s);
  CHECK(a.tables.calls_seen() == 0);  // no pointer was taken
  a.access.note_pointer(t.storage().unsafeGetStorageImpl());
  CHECK(a.refusal().empty());
  t.data_ptr<float>()[1] = 5;
  a.access.record_user_writes(s);
  a.access.record_user_writes(s);  // nothing has changed since
  REQUIRE(a.tables.calls_seen() == 1);
  const Call& call = a.tables.recording().calls[0];
  CHECK(call.kind == CallKind::constant);
  REQUIRE(call.extras->constant.size() == 16);
  float number = 0;
  std::memcpy(&number, call.extras->constant.data() + 4, sizeof number);
  CHECK(number == 5);
  const ValueId written = call.results[0].value;
  CHECK(a.tables.value(written).overwrites == a.known(s).owner);
  CHECK(a.tables.latest_version(s) == written);
  t.data_ptr<float>()[1] = 6;
  a.access.record_user_writes(s);
  CHECK(a.tables.calls_seen() == 2);
}

TEST_CASE("without LibTorch's word writes are found by comparing", "[user_access]") {
  Access a;
  const Tensor t = torch::zeros({4});
  const StorageIndex s = a.make(t);
  CHECK_FALSE(a.access.find_writes(s));
  a.known(s).digest = digest_of(*t.storage().unsafeGetStorageImpl());
  CHECK_FALSE(a.access.find_writes(s));
  t.data_ptr<float>()[3] = 1;
  CHECK(a.access.has_written(s));
  CHECK(a.access.find_writes(s));
  CHECK(a.hooks.writes == std::vector<StorageIndex>{s});
  CHECK(a.hooks.accesses == std::vector<StorageIndex>{s});
  CHECK_FALSE(a.access.find_writes(s));  // it is known
}

TEST_CASE("two storages in the same memory are told of each other", "[user_access]") {
  std::vector<float> mine(8);
  const Tensor all = torch::from_blob(mine.data(), {8}), half = torch::from_blob(mine.data(), {4});
  Access a;
  std::vector<StorageIndex> s;
  for (const Tensor& t : {all, half}) {
    const ValueId v = a.tables.add_persistent(t, Origin::captured, 0, Role::constant, "blob");
    s.push_back(a.tables.storage_of(v));
    a.access.find_shared_memory(s.back());
  }
  REQUIRE(a.access.sharing_memory_with(s[0]).size() == 1);
  CHECK(a.access.sharing_memory_with(s[0])[0] == s[1]);
  CHECK(a.access.sharing_memory_with(s[1])[0] == s[0]);
  CHECK_THAT(a.refusal(), contains("'blob' and 'blob' lie in the same memory"));
}
