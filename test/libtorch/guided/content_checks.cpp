// Whether what is recomputed starts from the same bytes, and makes the same bytes.

#include <reprise_test/lineages.hpp>

#include <reprise/libtorch/guided/content_checks.hpp>

using namespace reprise;
using namespace reprise::guided;
using namespace reprise::tensors;
using namespace reprise::testing;
using torch::Tensor;

namespace {

std::uint64_t digest(const Tensor& t) {
  return guided::digest_of(*t.storage().unsafeGetStorageImpl(), geometry_of(t));
}
const c10::StorageImpl& storage_of(const Tensor& t) { return *t.storage().unsafeGetStorageImpl(); }

}  // namespace

TEST_CASE("a digest is of the bytes that a tensor shows, and of no others", "[content_checks]") {
  Tensor t = torch::arange(64, torch::kFloat).view({8, 8});
  const Tensor column = t.select(1, 2), block = t.narrow(1, 2, 3), all = t;
  const auto before = std::vector{digest(column), digest(block), digest(all)};
  t[4][7] = -1;  // seen by `all` alone
  CHECK(digest(column) == before[0]);
  CHECK(digest(block) == before[1]);
  CHECK(digest(all) != before[2]);
  t[4][2] = -1;  // by all three
  CHECK(digest(column) != before[0]);
  CHECK(digest(block) != before[1]);
  CHECK(digest(torch::ones({0, 3})) == 0);
  CHECK(digest(torch::ones({3}).expand({4, 3})) == digest(torch::ones({3})));
}

TEST_CASE("a changed operand of a recomputation is an error that names both", "[content_checks]") {
  HandMadeStep step;
  const auto x = step.input();
  const auto h = step.call({x});
  ContentChecks checks;
  const Tensor& operand = step.tensors[0];
  checks.note_operand(step.recording().calls[0], h.node, 0, step.recording(), storage_of(operand));
  checks.check_operand(step.recording(), h.node, 0, storage_of(operand));
  operand[0] = 2;
  CHECK_THROWS_WITH(checks.check_operand(step.recording(), h.node, 0, storage_of(operand)),
                    contains("verify: node 0 (aten::relu) must be recomputed, but its operand, "
                             "'x', has changed since its first run"));
}

TEST_CASE("another result is an error that says whether it was recomputed", "[content_checks]") {
  HandMadeStep step;
  const auto h = step.call({step.input()});
  ContentChecks checks;
  const Tensor& result = step.tensors[1];
  checks.check_result(step.recording(), h.value, storage_of(result), true);  // never seen
  checks.note_result(step.recording(), h.value, storage_of(result));
  checks.check_result(step.recording(), h.value, storage_of(result), true);
  result[1023] = 2;
  CHECK_THROWS_WITH(checks.check_result(step.recording(), h.value, storage_of(result), true),
                    contains("recomputing what node 0 (relu) made gave other bytes"));
  CHECK_THROWS_WITH(checks.check_result(step.recording(), h.value, storage_of(result), false),
                    contains("was changed after its node ran, and not by an op"));
}
