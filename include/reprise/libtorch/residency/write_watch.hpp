#pragma once
// WriteWatch sees writes to a storage through a pointer, so that Reprise can recompute from the old
// contents before they are overwritten.
//
//   a storage of 3 pages and a bit     edge │ page │ page │ page │ edge
//   watch.start(s)                     whole pages: protected, the writer waits until the owner was called (protected_blocks.hpp)
//                                      edges:       copied, and compared before an op reads the storage
//
// The edges share their pages with other blocks, so they cannot be protected.

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <unordered_map>
#include <utility>
#include <vector>

#include <reprise/libtorch/device/cpu/counting_allocator.hpp>
#include <reprise/libtorch/residency/storage_record.hpp>

namespace reprise::residency {

class WriteWatch {
 public:
  explicit WriteWatch(StorageRecords& records) : records_(records) {}

  /// `owner` is called before a write to the whole pages.
  void start(StorageIndex s, BlockOwner& owner) {
    StorageRecord::Residency& storage = records_[s].residency;
    if (!ProtectedBlocks::available() || storage.writes_watched ||
        (storage.state != ResidencyState::resident && !storage.in_place) || storage.data == nullptr)
      return;
    if (pages_of(storage).bytes > 0 && !CountingAllocator::watch_writes(storage.data, owner, s))
      return;
    storage.writes_watched = true;
    Edges& edges = edges_[s];
    edges.bytes.clear();
    edges.exchanged = false;
    for_each_edge(storage, [&](std::byte* edge, std::size_t bytes) {
      edges.bytes.insert(edges.bytes.end(), edge, edge + bytes);
    });
  }
  void stop(StorageIndex s) {
    StorageRecord::Residency& storage = records_[s].residency;
    if (!std::exchange(storage.writes_watched, false)) return;
    if (pages_of(storage).bytes > 0) CountingAllocator::unwatch_writes(storage.data);
  }
  void stop_all() {
    for (const auto& [storage, edges] : edges_) stop(storage);
    edges_.clear();
  }

  /// Whether the edges were written. Nothing reports such a write.
  [[nodiscard]] bool edges_written(StorageIndex s) const {
    const StorageRecord::Residency& storage = records_[s].residency;
    if (!storage.writes_watched) return false;
    const Edges& edges = edges_.at(s);
    if (edges.exchanged) return false;
    bool same = true;
    const std::byte* saved = edges.bytes.data();
    for_each_edge(storage, [&](std::byte* edge, std::size_t bytes) {
      same = same && std::memcmp(edge, saved, bytes) == 0;
      saved += bytes;
    });
    return !same;
  }

  /// While this is in scope, the storage has the edges as they were when the watch began. Stops the
  /// watch at the end.
  class OldEdges {
   public:
    OldEdges(WriteWatch& watch, StorageIndex s) : watch_(watch), storage_(s) {
      watch_.exchange_edges(storage_);
    }
    ~OldEdges() {
      watch_.exchange_edges(storage_);
      watch_.stop(storage_);
    }
    OldEdges(const OldEdges&) = delete;
    OldEdges& operator=(const OldEdges&) = delete;

   private:
    WriteWatch& watch_;
    StorageIndex storage_;
  };

 private:
  struct Edges {
    std::vector<std::byte> bytes{};  ///< as they were when the watch began
    bool exchanged = false;          ///< the old bytes are in the storage, the new ones here
  };

  void exchange_edges(StorageIndex s) {
    Edges& edges = edges_.at(s);
    edges.exchanged = !edges.exchanged;
    std::byte* saved = edges.bytes.data();
    for_each_edge(records_[s].residency, [&](std::byte* edge, std::size_t bytes) {
      std::swap_ranges(edge, edge + bytes, saved);
      saved += bytes;
    });
  }

  [[nodiscard]] static ProtectedBlocks::Pages pages_of(const StorageRecord::Residency& storage) {
    return ProtectedBlocks::pages_in(storage.data, static_cast<std::size_t>(storage.bytes.count));
  }
  // The bytes before and after the whole pages; all bytes if there are no whole pages.
  template <class Visit>
  static void for_each_edge(const StorageRecord::Residency& storage, const Visit& visit) {
    const ProtectedBlocks::Pages pages = pages_of(storage);
    auto* const begin = static_cast<std::byte*>(storage.data);
    std::byte* const end = begin + storage.bytes.count;
    if (pages.bytes == 0) return visit(begin, static_cast<std::size_t>(end - begin));
    visit(begin, static_cast<std::size_t>(pages.begin - begin));
    visit(pages.begin + pages.bytes, static_cast<std::size_t>(end - pages.begin) - pages.bytes);
  }

  StorageRecords& records_;
  std::unordered_map<StorageIndex, Edges> edges_;  // of all storages that were ever watched
};

}  // namespace reprise::residency
