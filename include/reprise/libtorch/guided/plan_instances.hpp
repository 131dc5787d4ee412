#pragma once
// PlanInstances maps the storage instances of a plan to bytes while the step follows the plan. An
// instance is in a storage of the user's, or in a copy that the plan has recomputed.
//
//   instance 4   {user: s7}      relu's result, as the user's op made it
//   instance 9   {copy}          the same contents, recomputed by the plan before grad reads them
//                                attach(s7): the copy's bytes go under the user's tensor
//
// A step without a budget would not allocate the copies: Residency counts them separately.

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include <reprise/libtorch/record/recording_tables.hpp>
#include <reprise/libtorch/residency/residency.hpp>
#include <reprise/plan/followed_plan.hpp>

namespace reprise::guided {

class PlanInstances {
 public:
  struct Instance {
    bool live = false;
    StorageIndex user = no_storage;
    c10::Storage copy{};
    ValueId latest{};      ///< the version that it contains
    bool operand = false;  ///< of the occurrence that runs
  };

  PlanInstances(const RecordingTables& tables, Residency& residency)
      : tables_(tables), residency_(residency) {}

  /// Uses this plan from now on; null for none.
  void reset(const FollowedPlan* plan) {
    plan_ = plan;
    instances_.assign(plan != nullptr ? plan->resolution().storages.size() : 0, {});
    copy_of_.clear();
  }
  /// The results of this position of the schedule are in the user's storages.
  void place(const StepGraph& graph, std::uint32_t here) {
    const Resolution& resolution = plan_->resolution();
    for (const ValueInstance& value : resolution.values) {
      if (value.made_by == no_index || value.made_by >= here ||
          graph.value(value.value).alias_of.valid())
        continue;
      const StorageInstance& lies_in = resolution.storages[value.storage];
      const StorageIndex s = tables_.storage_of(value.value);
      if (lies_in.persistent || lies_in.last < here || s == no_storage ||
          tables_.latest_version(s) != value.value)
        continue;
      leave_user(value.storage);
      instances_[value.storage] = {true, s, {}, value.value, false};
      put_in_user(value.storage, s);
    }
  }
  /// Separates all instances from the user's storages.
  void leave_all() {
    StorageRecords& records = residency_.records();
    for (StorageIndex s = 0; s < records.size(); ++s) records[s].use.instance = no_index;
  }

  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(instances_.size()); }
  [[nodiscard]] Instance& operator[](std::uint32_t i) { return instances_[i]; }
  /// Whether the plan still needs the instance in this storage.
  [[nodiscard]] bool needs(StorageIndex s) const { return instances_[instance_in(s)].live; }
  [[nodiscard]] std::uint32_t instance_in(StorageIndex s) const {
    return residency_.records()[s].use.instance;
  }

  /// The instance is in the user's storage from now on.
  void put_in_user(std::uint32_t i, StorageIndex s) {
    instances_[i].live = true;
    instances_[i].user = s;
    residency_.records()[s].use.instance = i;
  }
  /// The instance is not in the user's storage from now on.
  void leave_user(std::uint32_t i) {
    const StorageIndex s = instances_[i].user;
    if (s != no_storage && instance_in(s) == i) residency_.records()[s].use.instance = no_index;
  }

  /// The plan has recomputed the instance.
  void add_copy(std::uint32_t i, c10::Storage copy) {
    instances_[i] = {true, no_storage, std::move(copy), {}, false};
    residency_.add_copy(bytes_of(i));
  }
  void release_copy(std::uint32_t i) {
    forget_copy(i);
    instances_[i].copy = {};
    residency_.remove_copy(bytes_of(i));
  }
  /// Sets the version that the instance contains, so that a read by the user's op finds it.
  void set_latest(std::uint32_t i, ValueId latest) {
    Instance& instance = instances_[i];
    if (instance.copy && instance.latest.valid()) forget_copy(i);
    instance.latest = latest;
    if (instance.copy) copy_of_[latest.index] = i;
  }

  /// Whether a copy has the value, and the user's storage has not.
  [[nodiscard]] bool holds(ValueId v) const {
    if (!copy_of_.contains(v.index)) return false;
    const StorageIndex s = tables_.storage_of(v);
    const ResidencyState state = residency_.state(s);
    return tables_.latest_version(s) == v &&
           (state == ResidencyState::evicted || state == ResidencyState::dead);
  }
  /// Whether `holds` is true for the value of any copy.
  template <class Holds>
  [[nodiscard]] bool any_copy(const Holds& holds_for) const {
    for (const auto& [value, instance] : copy_of_)
      if (holds_for(ValueId{value})) return true;
    return false;
  }

  /// Attaches a copy's bytes to the user's storage. False if there is no copy.
  bool attach(StorageIndex s) {
    const auto it = copy_of_.find(tables_.latest_version(s).index);
    if (it == copy_of_.end()) return false;
    const std::uint32_t i = it->second;
    Instance& instance = instances_[i];
    if (instance.operand) return false;  // the running occurrence reads it
    residency_.remove_copy(residency_.bytes(s));
    residency_.attach_bytes(
        s, std::exchange(instance.copy.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks(),
                         c10::DataPtr{}));
    instance.copy = {};
    put_in_user(i, s);
    copy_of_.erase(it);
    return true;
  }
  /// Keeps a copy as the orphan of a dead storage.
  void make_orphan(std::uint32_t i, StorageIndex s) {
    forget_copy(i);
    residency_.adopt_orphan(s, std::exchange(instances_[i].copy, {}), bytes_of(i));
    instances_[i].user = s;
  }

 private:
  [[nodiscard]] Bytes bytes_of(std::uint32_t i) const {
    return plan_->resolution().storages[i].bytes;
  }
  void forget_copy(std::uint32_t i) {
    const auto it = copy_of_.find(instances_[i].latest.index);
    if (it != copy_of_.end() && it->second == i) copy_of_.erase(it);
  }

  const RecordingTables& tables_;
  Residency& residency_;
  const FollowedPlan* plan_ = nullptr;
  std::vector<Instance> instances_;  // by the plan's storage instance
  // value -> the instance whose copy has it
  std::unordered_map<std::uint32_t, std::uint32_t> copy_of_;
};

}  // namespace reprise::guided
