// SPDX-License-Identifier: Apache-2.0
// A class file: what is read can be used as it is. Names are names, paths lead nowhere else, and what is laid
// over Kata's configuration is TOML.
#include <algorithm>
#include <set>

#include "common/config/config_tree.h"
#include "kata-manager/classes/class_file.h"
#include "kata-manager/classes/runtime_class.h"
#include "kata-manager/configuration/kata_configuration.h"
#include "kata-manager/runtimes/container_runtime.h"
#include "tests/fuzz/fuzz.h"

namespace ferry {
namespace {

bool stays_inside(const std::filesystem::path& path) {
  return path.is_absolute() && std::ranges::none_of(path, [](const auto& part) { return part == ".."; });
}

void one_class(const kata::KataClass& kata, std::set<std::string>& handlers) {
  for (const std::string& handler : kata.handlers()) {
    fuzz::require(kata::is_handler_name(handler), "a handler is a DNS label");
    fuzz::require(handlers.insert(handler).second, "no handler stands twice");
  }
  fuzz::require(!kata.artifacts.url.empty(), "artifacts come from somewhere");
  const auto folder = kata.artifacts.folder();
  fuzz::require(!folder || stays_inside(*folder), "a folder is below the root");
  fuzz::require(!kata.shim || stays_inside(*kata.shim), "a shim is below the root");
  for (const kata::RuntimeClass& manifest : kata::runtime_classes(kata)) {
    const std::string yaml = kata::runtime_classes_yaml({&manifest, 1});
    const auto read = parse_config({.file = "manifest.yaml", .text = yaml});
    fuzz::require(read.has_value(), "a manifest can be read");
    fuzz::require(read->find("handler")->value.text == manifest.handler, "and names its handler");
  }
  const kata::KataBase base{.file = "/c/configuration.toml",
                            .text = "[hypervisor.qemu]\nkernel = \"/k\"\nimage = \"/i\"\n",
                            .folder = "/c"};
  const auto made = kata::kata_drop_in(kata, base, {.gpus = 1}, "");
  if (!made) return fuzz::require(made.error().code == Errc::invalid_config, "a refusal is an invalid file");
  auto merged = kata::parse_toml(base.text, "base");
  const auto said = kata::parse_toml(made->text, "drop-in");
  fuzz::require(merged && said, "a drop-in is TOML");
  kata::merge_over(*merged, *said);
  fuzz::require(*merged == made->effective, "and says what counts then");
}

}  // namespace
}  // namespace ferry

void ferry::fuzz::one_input(std::string_view text) {
  const ConfigText source{.file = "k.yaml", .text = std::string(text)};
  for (const Reading how : {Reading::strict, Reading::lenient}) {
    const auto file = kata::read_classes(source, how);
    if (!file) {
      require(file.error().code == Errc::invalid_config, "a refusal is an invalid configuration");
      require(file.error().message.starts_with("k.yaml"), "a refusal says where");
      continue;
    }
    require(how == Reading::lenient || file->warnings.empty(), "strictly nothing is let pass");
    require(stays_inside(file->artifacts_dir), "artifacts are below the root");
    std::set<std::string> handlers;
    for (const kata::KataClass& kata : file->classes) one_class(kata, handlers);
  }
}
