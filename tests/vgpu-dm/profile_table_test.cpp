// SPDX-License-Identifier: Apache-2.0
// A table of profile files, each with what comes of reading it: strictly, and as NVIDIA's program reads.
//
// profile-files.txt, row by row: a line "== NAME"; the file, each line behind "| "; then "valid: " and a
// profile in one line for each that there is, or "error: " and "hint: " of the refusal. Where the lenient
// reading differs, the same behind a line "lenient:", with a "warning: " for each thing that was let pass.
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "vgpu-dm/profile/profile_yaml.h"

namespace ferry::vgpu {
namespace {

struct Row {
  std::string name;
  std::string text;
  std::string strict;
  std::string lenient;
};

std::vector<Row> rows() {
  std::ifstream in(FERRY_SOURCE_DIR "/tests/vgpu-dm/profile-files.txt");
  std::vector<Row> out;
  bool lenient = false;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("== ")) {
      out.push_back({.name = line.substr(3), .text = {}, .strict = {}, .lenient = {}});
      lenient = false;
    } else if (line.starts_with("| ")) {
      out.back().text += line.substr(2) + "\n";
    } else if (line == "lenient:") {
      lenient = true;
    } else if (!line.empty() && !line.starts_with('#')) {
      (lenient ? out.back().lenient : out.back().strict) += line + "\n";
    }
  }
  return out;
}

std::string in_a_line(const ProfileItem& item) {
  std::string out = item.all_devices ? "all" : "[";
  for (const std::int64_t index : item.indices) {
    out += (out == "[" ? "" : " ") + std::to_string(index);
  }
  if (!item.all_devices) out += "]";
  for (const DeviceFilter& filter : item.filters) out += " " + filter.text();
  for (const VgpuCount& entry : item.vgpus)
    out += " " + entry.type.text() + "=" + std::to_string(entry.count);
  return out;
}

std::string result(const std::string& text, Reading how) {
  const auto file = read_profiles({.file = "p.yaml", .text = text, .first_line = 1, .one_line = false}, how);
  if (!file) {
    EXPECT_EQ(file.error().code, Errc::invalid_config);
    return "error: " + file.error().message + "\n" +
           (file.error().hint.empty() ? "" : "hint: " + file.error().hint + "\n");
  }
  std::string out = file->profiles.empty() ? "valid: nothing\n" : "";
  for (const Profile& profile : file->profiles) {
    std::string items;
    for (const ProfileItem& item : profile.items) items += (items.empty() ? "" : " | ") + in_a_line(item);
    out += "valid: " + profile.name + ": " + items + "\n";
  }
  for (const std::string& warning : file->warnings) out += "warning: " + warning + "\n";
  return out;
}

TEST(ProfileTable, HasTheResultOfEveryRow) {
  const std::vector<Row> table = rows();
  EXPECT_GE(table.size(), 120U);
  for (const Row& row : table) {
    SCOPED_TRACE(row.name);
    EXPECT_EQ(result(row.text, Reading::strict), row.strict);
    EXPECT_EQ(result(row.text, Reading::lenient), row.lenient.empty() ? row.strict : row.lenient);
  }
}

// What is let pass is what a strict reading refuses, and nothing else.
TEST(ProfileTable, HasAWarningForWhateverIsLetPass) {
  for (const Row& row : rows()) {
    if (!row.lenient.starts_with("valid: ")) continue;
    SCOPED_TRACE(row.name);
    EXPECT_TRUE(row.strict.starts_with("error: "));
    EXPECT_NE(row.lenient.find("\nwarning: p.yaml:"), std::string::npos);
  }
}

}  // namespace
}  // namespace ferry::vgpu
