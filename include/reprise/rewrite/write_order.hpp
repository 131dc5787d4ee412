#pragma once
// WriteOrder counts the writes to each persistent storage. It finds an occurrence that sees another
// number of writes than in the graph's own order, and would therefore compute something else.
//
//   own order     read(p) -> a     write(a) -> p     last(a) -> b        p is persistent
//   schedule      read, write, read again, last
//
//   order.run(read, true)      nullptr: p has been written 0 times, as in the own order
//   order.run(write, true)     nullptr
//   order.run(read, false)     p: written once by now, 0 times in the own order
//
// Views of p count as p. The plan format requires this only for values in some node's `updates`,
// and only if they are among `inputs` themselves. Steps recorded from LibTorch are written so that
// both rules agree.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <reprise/graph/step_graph.hpp>

namespace reprise::rewriting {

class WriteOrder {
 public:
  struct Touch {
    StorageId storage{};
    std::uint32_t writes_before = 0;
    /// also for clones; a storage that a node only writes is written by its first run alone
    bool reads = false;
  };

  explicit WriteOrder(const StepGraph& graph) : graph_(graph), writes_(graph.storage_count(), 0) {
    std::vector<Touch> list;
    for (NodeId n : graph.node_ids()) {
      list.clear();
      for (ValueId v : graph.inputs(n)) touch(list, v, true);
      for (ValueId v : graph.outputs(n)) {
        touch(list, v, false);
        if (!graph.value(v).persistent && !graph.value(v).owns())
          touch(list, graph.value(v).target(), true);
      }
      for (ValueId v : graph.updates(n)) touch(list, v, false);
      touches_.push_back(list);
      write(n, true, writes_);
    }
    std::fill(writes_.begin(), writes_.end(), 0);
  }

  /// The first storage whose contents differ from what the node found in the graph's own order;
  /// nullptr if there is none. Counts the node's writes.
  const Touch* run(NodeId n, bool first) {
    for (const Touch& t : touches_[n.index])
      if ((first || t.reads) && writes_[t.storage.index] != t.writes_before) return &t;
    write(n, first, writes_);
    return nullptr;
  }

  [[nodiscard]] std::uint32_t writes(StorageId s) const { return writes_[s.index]; }

 private:
  void touch(std::vector<Touch>& list, ValueId v, bool reads) const {
    const StorageId s = graph_.value(v).storage;
    if (graph_.storage(s).persistent) list.push_back({s, writes_[s.index], reads});
  }

  void write(NodeId n, bool first, std::vector<std::uint32_t>& writes) const {
    if (first)
      for (ValueId v : graph_.updates(n)) ++writes[graph_.value(v).storage.index];
    for (ValueId v : graph_.outputs(n))
      if (graph_.value(v).persistent || graph_.value(v).overwrites.valid())
        ++writes[graph_.value(v).storage.index];
  }

  const StepGraph& graph_;
  std::vector<std::uint32_t> writes_;  // by storage
  FlatLists<Touch> touches_;           // by node
};

}  // namespace reprise::rewriting
