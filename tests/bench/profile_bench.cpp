// SPDX-License-Identifier: Apache-2.0
// How much reading a big profile file strictly costs beyond parsing its YAML: 700 profiles, more than are
// shipped for all boards together.
#include <stdexcept>
#include <string>

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include "tests/bench/pairs.h"
#include "tests/support/must.h"
#include "vgpu-dm/profile/profile_yaml.h"

namespace ferry::test {
namespace {

constexpr unsigned kProfiles = 700;

// The shape of the shipped files: a type on all GPUs, and now and then one item for each of several boards.
std::string profile_text() {
  std::string text = "version: v1\nvgpu-configs:\n";
  for (unsigned n = 0; n < kProfiles; ++n) {
    text += fmt::format("  \"B{}-{}Q\":\n", n, 1 + n % 48);
    for (unsigned item = 0; item < 1 + n % 3; ++item) {
      text += fmt::format(
          "  - device-filter: [\"0x{:04X}10DE\", \"0x{:04X}10DE:0x185110DE\"]\n"
          "    devices: all\n"
          "    vgpu-devices:\n"
          "      \"B{}-{}Q\": {}\n",
          0x2000 + n, 0x2000 + item, n, 1 + n % 48, 1 + n % 32);
    }
  }
  return text;
}

int run(int argc, char** argv) {
  const ConfigText source{.file = "profiles.yaml", .text = profile_text()};
  if (must(vgpu::read_profiles(source)).profiles.size() != kProfiles)
    throw std::runtime_error("profiles are missing");
  return run_contest({.name = fmt::format("reading {} profiles", kProfiles),
                      .baseline = fmt::format("yaml-cpp loading the same {} KiB", source.text.size() / 1024),
                      .ours = [&] { must(vgpu::read_profiles(source)); },
                      .theirs = [&] { YAML::Load(source.text); },
                      .bound = 1.5},
                     argc, argv);
}

}  // namespace
}  // namespace ferry::test

int main(int argc, char** argv) {
  return ferry::test::run_benchmark(argc, argv, ferry::test::run);
}
