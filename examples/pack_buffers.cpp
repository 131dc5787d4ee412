// Packs buffers with known lifetimes into one arena: id,lower,upper,size in, the same with offsets
// out.
//
//   pack_buffers challenging/A.1048576.csv --capacity 1048576 --out A.out.csv

#include <charconv>
#include <chrono>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include <reprise/pack/assign_offsets.hpp>
#include <reprise/plan/plan_file.hpp>

#include "support/cli.hpp"

namespace {

using namespace reprise;
using namespace reprise::planning;
using namespace reprise::replaying;

struct Row {
  std::string id;
  Buffer buffer;
};

std::int64_t number(const std::string& text, std::size_t line, const char* field) {
  std::int64_t n = 0;
  const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (status != std::errc{} || rest != text.data() + text.size())
    throw Error(Errc::bad_format, "line " + std::to_string(line) + ": " + field + " '" + text +
                                      "' is not a whole number");
  return n;
}

std::vector<Row> read_rows(const std::string& path) {
  std::ifstream in{path};
  if (!in) throw Error(Errc::io, path + ": cannot be opened for reading");
  std::vector<Row> rows;
  std::vector<std::string> header;
  std::string line;
  for (std::size_t count = 1; std::getline(in, line); ++count) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (line.empty()) continue;
    std::vector<std::string> fields;
    std::istringstream parts{line};
    for (std::string field; std::getline(parts, field, ',');) fields.push_back(field);
    if (header.empty()) {
      header = fields;
      for (const char* name : {"id", "lower", "upper", "size"})
        if (std::find(header.begin(), header.end(), name) == header.end())
          throw Error(Errc::bad_format,
                      path + ": line 1: no column '" + name + "'; write id,lower,upper,size");
      continue;
    }
    if (fields.size() < header.size())
      throw Error(Errc::bad_format, path + ": line " + std::to_string(count) + ": too few fields");
    Row row;
    for (std::size_t i = 0; i < header.size(); ++i) {
      if (header[i] == "id") row.id = fields[i];
      else if (header[i] == "lower") row.buffer.lower = number(fields[i], count, "lower");
      else if (header[i] == "upper") row.buffer.upper = number(fields[i], count, "upper");
      else if (header[i] == "size") row.buffer.size = {number(fields[i], count, "size")};
    }
    rows.push_back(row);
  }
  if (header.empty()) throw Error(Errc::bad_format, path + ": empty");
  return rows;
}

int run(int argc, char** argv) {
  std::string in, out;
  std::int64_t capacity = 0, alignment = 1;
  bool quiet = false;
  examples::Flags flags("pack_buffers",
                        "Gives buffers with known lifetimes their places in one arena.");
  flags.positional("IN.csv", "id,lower,upper,size: alive in [lower, upper)", in);
  flags.add("--capacity", "N", "size of the arena; 0 for as small as possible", capacity);
  flags.add("--alignment", "N", "offsets are multiples of this", alignment, 1);
  flags.add("--out", "OUT.csv", "write id,lower,upper,size,offset there", out);
  flags.add("--quiet", "print nothing but errors", quiet);
  if (!flags.parse(argc, argv)) return examples::done;
  const std::vector<Row> rows = read_rows(in);
  std::vector<Buffer> buffers;
  for (const Row& r : rows) buffers.push_back(r.buffer);
  const auto begin = std::chrono::steady_clock::now();
  const ArenaPlan plan =
      assign_offsets(buffers, {.alignment = Bytes{alignment}, .enough = Bytes{capacity}});
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (!quiet)
    std::cout << "buffers   " << buffers.size() << "\nload      " << plan.load.count
              << "\narena     " << plan.height.count << "  (" << plan.ratio()
              << " of the load)\nseconds   " << seconds << '\n';
  if (capacity > 0 && plan.height > Bytes{capacity})
    throw Error(Errc::budget_unreachable,
                "capacity " + std::to_string(capacity) + ": the smallest arena found is " +
                    std::to_string(plan.height.count) + ", the maximal load " +
                    std::to_string(plan.load.count));
  if (out.empty()) return examples::done;
  std::ostringstream text;
  text << "id,lower,upper,size,offset\n";
  for (std::size_t i = 0; i < rows.size(); ++i)
    text << rows[i].id << ',' << rows[i].buffer.lower << ',' << rows[i].buffer.upper << ','
         << rows[i].buffer.size.count << ',' << plan.offsets[i].count << '\n';
  write_file_atomically(out, text.str());
  return examples::done;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run("pack_buffers", [&] { return run(argc, argv); });
}
