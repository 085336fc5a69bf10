// SPDX-License-Identifier: Apache-2.0
#include "tests/kata-manager/containerd_summary.h"

#include <initializer_list>
#include <string>
#include <utility>

namespace ferry::test {
namespace {

using nlohmann::json;

json as_json(const kata::TomlValue& value) {
  if (const auto* table = value.table()) {
    json out = json::object();
    for (const auto& [key, inner] : *table) out[key] = as_json(inner);
    return out;
  }
  if (const auto* list = value.array()) {
    json out = json::array();
    for (const kata::TomlValue& element : *list) out.push_back(as_json(element));
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

}  // namespace

nlohmann::json summary(const kata::TomlTable& section, const json& built_in) {
  const json all = as_json({section});
  json out = json::object();
  const auto take = [&](const char* name, std::initializer_list<const char*> paths) {
    for (const char* path : paths) {
      const json::json_pointer at(path);
      if (!all.contains(at)) continue;
      if (!is_empty(all.at(at))) out[name] = without_what_is_empty(all.at(at));
      return;
    }
    if (built_in.contains(name)) out[name] = built_in.at(name);
  };
  take("sandbox_image", {"/sandbox_image", "/pinned_images/sandbox"});
  take("registry_config_path", {"/registry/config_path"});
  take("default_runtime_name", {"/containerd/default_runtime_name"});
  take("enable_cdi", {"/enable_cdi"});
  take("cdi_spec_dirs", {"/cdi_spec_dirs"});
  for (const char* key : {"bin_dir", "bin_dirs", "conf_dir"}) {
    const json::json_pointer in_section(std::string("/cni/") + key);
    const json& from = all.contains(in_section) ? all : built_in;
    if (from.contains(in_section) && !is_empty(from.at(in_section))) out["cni"][key] = from.at(in_section);
  }
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
  return out;
}

nlohmann::json as_upstream(nlohmann::json section, std::string_view release) {
  if (release != "1.7.24" && release != "2.1.9") return section;
  if (!section.contains("cni")) return section;
  json& network = section.at("cni");
  if (network.value("bin_dir", "") == "/usr/lib/cni") network["bin_dir"] = "/opt/cni/bin";
  if (network.contains("bin_dirs") && network.at("bin_dirs").at(0) == "/usr/lib/cni")
    network["bin_dirs"] = {"/opt/cni/bin"};
  return section;
}

nlohmann::json as_modelled(nlohmann::json summary, std::string_view release) {
  if (release.starts_with("1.6.")) {
    summary.erase("enable_cdi");
    summary.erase("cdi_spec_dirs");
  }
  if (release.starts_with("1.")) return summary;
  summary.erase("sandbox_image");
  if (summary.contains("cni")) {
    for (const char* key : {"bin_dir", "bin_dirs"}) summary["cni"].erase(key);
    if (summary["cni"].empty()) summary.erase("cni");
  }
  return summary;
}

}  // namespace ferry::test
