// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/classes/kubelet_settings.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include "common/config/config_tree.h"
#include "common/text/text.h"

namespace ferry::kata {
namespace {

using Kind = ConfigNode::Kind;

constexpr const char* kUsualFile = "/var/lib/kubelet/config.yaml";
constexpr std::string_view kGate = "KubeletPodResourcesGet";

/// The command line of the process named "kubelet"; empty: none runs.
std::vector<std::string> kubelets_arguments(const HostFs& host) {
  const auto names = host.list("proc").value_or(std::vector<std::string>{});
  for (const std::string& name : names) {
    if (name.empty() || std::isdigit(static_cast<unsigned char>(name.front())) == 0) continue;
    const std::filesystem::path process = std::filesystem::path("proc") / name;
    if (host.read_attribute(process / "comm").value_or("") != "kubelet") continue;
    return words_between(host.read_file(process / "cmdline").value_or(""), '\0');
  }
  return {};
}

/// The value of "--NAME=VALUE" or "--NAME VALUE"; the last counts.
std::optional<std::string> flag_of(const std::vector<std::string>& arguments, const std::string& name) {
  std::optional<std::string> out;
  const std::string flag = "--" + name;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].starts_with(flag + "=")) out = arguments[i].substr(flag.size() + 1);
    if (arguments[i] == flag && i + 1 < arguments.size()) out = arguments[i + 1];
  }
  return out;
}

std::optional<bool> truth_of(std::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  return std::nullopt;
}

void read_flags(const std::vector<std::string>& arguments, KubeletSettings& into) {
  for (const std::string& gate : words_between(flag_of(arguments, "feature-gates").value_or(""), ',')) {
    const std::size_t equals = gate.find('=');
    if (equals == std::string::npos || std::string_view(gate).substr(0, equals) != kGate) continue;
    into.pod_resources_get = truth_of(std::string_view(gate).substr(equals + 1));
  }
  if (const auto timeout = flag_of(arguments, "runtime-request-timeout"))
    into.request_timeout = parse_go_duration(*timeout);
}

void read_tree(const ConfigNode& root, KubeletSettings& into) {
  if (root.kind != Kind::map) return;
  const ConfigMember* gates = root.find("featureGates");
  const ConfigMember* gate =
      gates == nullptr || gates->value.kind != Kind::map ? nullptr : gates->value.find(kGate);
  if (gate != nullptr) into.pod_resources_get = truth_of(gate->value.text);
  const ConfigMember* timeout = root.find("runtimeRequestTimeout");
  if (timeout != nullptr) into.request_timeout = parse_go_duration(timeout->value.text);
  // The kubelet treats 0 as unset.
  if (into.request_timeout == std::chrono::seconds(0)) into.request_timeout.reset();
}

}  // namespace

std::optional<std::chrono::seconds> parse_go_duration(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, double>, 7> kUnits = {
      {{"h", 3600.0}, {"m", 60.0}, {"s", 1.0}, {"ms", 1e-3}, {"us", 1e-6}, {"\u00b5s", 1e-6}, {"ns", 1e-9}}};
  constexpr double kLongest = 1e9;  // seconds; Go's durations are below 300 years
  if (text == "0") return std::chrono::seconds(0);
  if (text.empty()) return std::nullopt;
  double seconds = 0;
  while (!text.empty()) {
    const std::size_t number_end = std::min(text.find_first_not_of("0123456789."), text.size());
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + number_end, number);
    if (error != std::errc() || end != text.data() + number_end) return std::nullopt;
    text.remove_prefix(number_end);
    const std::size_t unit_end = std::min(text.find_first_of("0123456789."), text.size());
    const auto* const unit =
        std::ranges::find(kUnits, text.substr(0, unit_end), &std::pair<std::string_view, double>::first);
    if (unit == kUnits.end()) return std::nullopt;
    text.remove_prefix(unit_end);
    seconds += number * unit->second;
    if (!(seconds <= kLongest)) return std::nullopt;
  }
  return std::chrono::seconds(static_cast<std::chrono::seconds::rep>(seconds));
}

Result<KubeletSettings> KubeletSettings::read(const HostFs& host) {
  KubeletSettings out;
  const std::vector<std::string> arguments = kubelets_arguments(host);
  const auto named = flag_of(arguments, "config");
  if (arguments.empty() || named) {
    out.file = named.value_or(kUsualFile);
    auto text = host.read_file(out.file.relative_path());
    if (!text && arguments.empty() && is_gone(text.error()))
      return fail(Errc::not_found, "no kubelet runs here by that name, and there is no " + out.file.string());
    if (!text) return fail(std::move(text).error());
    auto root = parse_config({.file = out.file, .text = std::move(*text)});
    if (!root) return fail(std::move(root).error());
    read_tree(*root, out);
  }
  read_flags(arguments, out);
  return out;
}

}  // namespace ferry::kata
