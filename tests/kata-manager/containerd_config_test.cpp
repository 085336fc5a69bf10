// SPDX-License-Identifier: Apache-2.0
// The prediction against what real releases did, case by case (tests/fixtures/containerd).
#include "kata-manager/containerd_config.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/support/must.h"

namespace ferry {
namespace {

using nlohmann::json;

const std::filesystem::path& fixtures() {
  static const std::filesystem::path folder = FERRY_SOURCE_DIR "/tests/fixtures/containerd";
  return folder;
}

const json& measured() {
  static const json results = json::parse(std::ifstream(fixtures() / "results.json"));
  return results;
}

json as_json(const TomlValue& value) {
  if (const auto* table = value.table()) {
    json out = json::object();
    for (const auto& [key, inner] : *table) out[key] = as_json(inner);
    return out;
  }
  if (const auto* list = value.array()) {
    json out = json::array();
    for (const TomlValue& element : *list) out.push_back(as_json(element));
    return out;
  }
  if (const auto* text = value.string()) return *text;
  if (const auto* number = value.integer()) return *number;
  if (const auto* truth = value.boolean()) return *truth;
  return std::get<double>(value.value);
}

bool is_empty(const json& value) {
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  return value == false || value == 0 || (value.is_structured() && value.empty());
}

json without_what_is_empty(const json& value) {
  if (!value.is_object()) return value;
  json out = json::object();
  for (const auto& [key, inner] : value.items()) {
    if (json kept = without_what_is_empty(inner); !is_empty(kept)) out[key] = std::move(kept);
  }
  return out;
}

/// As results.json has a section: some of its keys, under names of their own.
json summary(const TomlTable& section) {
  const json all = as_json({section});
  json out;
  const auto take = [&](const char* name, const char* path) {
    const json::json_pointer at(path);
    if (all.contains(at) && !is_empty(all.at(at))) out[name] = without_what_is_empty(all.at(at));
  };
  take("sandbox_image", "/sandbox_image");
  take("sandbox_image", "/pinned_images/sandbox");
  take("registry_config_path", "/registry/config_path");
  take("default_runtime_name", "/containerd/default_runtime_name");
  take("enable_cdi", "/enable_cdi");
  take("cdi_spec_dirs", "/cdi_spec_dirs");
  const json::json_pointer runtimes("/containerd/runtimes");
  if (!all.contains(runtimes)) return out;
  for (const auto& [handler, entry] : all.at(runtimes).items()) {
    out["runtimes"][handler] = json::object();
    for (const char* key : {"container_annotations", "pod_annotations", "options",
                            "privileged_without_host_devices", "runtime_path", "runtime_type"}) {
      if (!entry.contains(key)) continue;
      if (json kept = without_what_is_empty(entry.at(key)); !is_empty(kept))
        out["runtimes"][handler][key] = std::move(kept);
    }
  }
  for (const char* key : {"bin_dir", "bin_dirs", "conf_dir"}) {
    const json::json_pointer at(std::string("/cni/") + key);
    if (all.contains(at) && !is_empty(all.at(at))) out["cni"][key] = all.at(at);
  }
  return out;
}

/// Debian's builds have another folder built in.
json as_upstream(json section, const std::string& release) {
  if (release != "1.7.24" && release != "2.1.9") return section;
  if (!section.contains("cni")) return section;
  json& network = section.at("cni");
  if (network.value("bin_dir", "") == "/usr/lib/cni") network["bin_dir"] = "/opt/cni/bin";
  if (network.contains("bin_dirs") && network.at("bin_dirs").at(0) == "/usr/lib/cni")
    network["bin_dirs"] = {"/opt/cni/bin"};
  return section;
}

std::vector<std::string> all_cases() {
  std::vector<std::string> out;
  for (const auto& [name, about] : measured().items()) out.push_back(name);
  return out;
}

class OfRealReleases : public testing::TestWithParam<std::string> {
 protected:
  static void compare(const json& outcome, const std::string& release) {
    SCOPED_TRACE(release);
    const HostFs host(fixtures() / "corpus");
    const ConfigFiles files(host);
    const auto predicted =
        predict_containerd(test::must(ContainerdRelease::parse(release == "main" ? "2.4.0" : release)), files,
                           "/" + GetParam() + "/config.toml");
    ASSERT_EQ(!predicted.no_start, outcome.at("starts"))
        << (predicted.no_start ? predicted.no_start->message : "it would start");
    if (predicted.no_start) return;
    EXPECT_EQ(!predicted.no_cri, outcome.at("cri")) << (predicted.no_cri ? predicted.no_cri->message : "");
    auto disabled = predicted.disabled_plugins;
    std::ranges::sort(disabled);
    EXPECT_EQ(json(disabled), outcome.value("disabled_plugins", json::array()));
    for (const auto& [id, section] : outcome.at("sections").items()) {
      ASSERT_TRUE(predicted.plugins.contains(id));
      const json wanted = as_upstream(section, release);
      // 2.0 has no such key, and its dump leaves it out.
      json found = summary(*predicted.plugins.at(id).table());
      if (release.starts_with("2.0.") && found.contains("cni")) found["cni"].erase("bin_dirs");
      if (release.starts_with("1.6.")) found.erase("enable_cdi"), found.erase("cdi_spec_dirs");
      EXPECT_EQ(found, wanted) << id;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Corpus, OfRealReleases, testing::ValuesIn(all_cases()), [](const auto& row) {
  std::string name = row.param;
  std::ranges::replace(name, '-', '_');
  return name;
});

TEST_P(OfRealReleases, IsAsTheyDid) {
  std::size_t compared = 0;
  for (const json& outcome : measured().at(GetParam()).at("outcomes")) {
    for (const auto& release : outcome.at("releases")) {
      compare(outcome, release);
      ++compared;
    }
  }
  EXPECT_EQ(compared, 11U);
}

}  // namespace
}  // namespace ferry
