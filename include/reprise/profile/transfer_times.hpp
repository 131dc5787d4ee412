#pragma once
// take_transfer_times() reads transfer times from a graph file: `swap_out_us` and `swap_in_us` of
// the storage's owner.
//
//   {"id": 2, "bytes": 8192, "role": "activation", "swap_out_us": 12.5, "swap_in_us": 11}
//   take_transfer_times(profile);        profile.storages[s.index]: swap_out 12.5 us, swap_in 11 us, measured

#include <optional>
#include <string>
#include <string_view>

#include <reprise/graph/write_graph.hpp>
#include <reprise/profile/profile.hpp>

namespace reprise::profiling {

/// The time under this key; empty without the key. Throws Errc::bad_graph if it is no time.
[[nodiscard]] inline std::optional<Microseconds> extra_time(const std::vector<JsonField>& extra,
                                                            std::string_view key, const Value& v) {
  for (const JsonField& f : extra) {
    if (f.key != key) continue;
    if ((f.kind != JsonKind::integer && f.kind != JsonKind::number) || f.number < 0)
      throw Error(Errc::bad_graph, "values: " + std::to_string(v.id) + ": " + f.key + ": " +
                                       printable(json_text(f)) + " is not a number >= 0");
    return Microseconds{f.number};
  }
  return std::nullopt;
}

/// Storages whose owner has both times get them; the others stay as they are.
inline void take_transfer_times(Profile& p) {
  for (std::size_t i = 0; i < p.storages.size(); ++i) {
    const Value& owner = p.graph.value(p.graph.storage(StorageId{i}).owner);
    if (owner.extra.find("swap_") == std::string::npos) continue;
    const std::vector<JsonField> extra =
        parse_extra(owner.extra, "values: " + std::to_string(owner.id));
    const auto out = extra_time(extra, "swap_out_us", owner),
               in = extra_time(extra, "swap_in_us", owner);
    if (out && in)
      p.storages[i] = {
          .bytes = p.storages[i].bytes, .swap_out = *out, .swap_in = *in, .measured = true};
  }
}

}  // namespace reprise::profiling
