// SPDX-License-Identifier: Apache-2.0
// Kata's configuration as an artifact has it: with our drop-in it is what is said to count, and a drop-in
// that is there already leaves nothing to be said. A pulled configuration starts no programs but Kata's.
#include "kata-manager/configuration/kata_configuration.h"
#include "tests/fuzz/fuzz.h"

namespace ferry {
namespace {

// A pulled configuration starts no program but Kata's, or is refused.
void only_katas_programs(const kata::KataClass& kata, kata::KataBase base) {
  base.folder = "/a/.ferry/fuzz/sha256-a";
  base.artifacts_dir = "/a";
  base.shim.path = "/opt/kata/bin/containerd-shim-kata-v2";
  const auto made = kata::kata_drop_in(kata, base, {.gpus = 1}, "/s");
  if (!made) return;
  for (const auto& program : made->programs) {
    const std::string path = program.lexically_normal();
    fuzz::require(path.starts_with("/opt/kata/"), "a pulled configuration starts Kata's programs alone");
  }
}

}  // namespace
}  // namespace ferry

void ferry::fuzz::one_input(std::string_view text) {
  for (const kata::KataKind kind : {kata::KataKind::gpu, kata::KataKind::snp}) {
    kata::KataClass kata;
    kata.name = "fuzz";
    kata.kind = kind;
    kata::KataBase base{.file = "/c/configuration.toml",
                        .text = std::string(text),
                        .folder = "/c",
                        .files = {"vmlinux", "kata.img"}};
    only_katas_programs(kata, base);
    const auto made = kata::kata_drop_in(kata, base, {.gpus = 2, .switches = 1}, "/s");
    if (!made) {
      require(made.error().code == Errc::invalid_config, "a refusal is an invalid configuration");
      continue;
    }
    auto merged = kata::parse_toml(made->copy, "base");
    const auto said = kata::parse_toml(made->text, "drop-in");
    require(merged && said, "a drop-in is TOML");
    kata::merge_over(*merged, *said);
    require(*merged == made->effective, "and says what counts then");
    base.drop_ins = {{"50-same.toml", made->text}};
    const auto again = kata::kata_drop_in(kata, base, {.gpus = 2, .switches = 1}, "/s");
    require(again && again->text.empty(), "twice is nothing");
  }
}
