// SPDX-License-Identifier: Apache-2.0
#include "cli/completion/host_completion.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <map>
#include <system_error>
#include <unistd.h>

#include "common/process/this_process.h"
#include "common/text/text.h"
#include "common/text/visible_text.h"
#include "host/claims/claim_record.h"
#include "host/usage/advertised_use_probe.h"
#include "hostfs/host_fs.h"
#include "kubevirt-plugin/discovery/device_names.h"
#include "policy/accelerators.h"
#include "policy/kubernetes_files.h"
#include "vfio/pci/inventory.h"

namespace ferry::cli {
namespace {

// bash splits words at ':' and '=', unless the user has removed them from COMP_WORDBREAKS, and replaces only
// the last part. `cut` is the length of the parts before it.
constexpr std::string_view kBash = R"bash(# shellcheck shell=bash
# Completion of ferry for bash.

_ferry() {
    local word last=0 cut=0 option=''
    local -a line=("${COMP_WORDS[0]}") found
    COMPREPLY=()
    for word in "${COMP_WORDS[@]:1:COMP_CWORD}"; do
        if ((last > 0)) && [[ $word == [:=]* || ${line[last]} == *[:=] ]]; then
            cut=${#line[last]}
            line[last]+=$word
            if [[ $word == [:=]* ]]; then cut=${#line[last]}; fi
        else
            line+=("$word")
            last=$((last + 1))
            cut=0
        fi
    done
    mapfile -t found < <("${line[0]}" complete "${line[@]:1}" 2> /dev/null)
    if ((${#found[@]} == 0)); then return; fi
    case ${found[-1]} in
    :0) compopt -o default ;;
    :16) compopt -o dirnames ;;
    esac
    unset 'found[-1]'
    if [[ ${line[last]} == --*=* ]]; then option=${line[last]%%=*}=; fi
    for word in "${found[@]}"; do
        word=$option${word%%$'\t'*}
        COMPREPLY+=("${word:cut}")
    done
}

complete -F _ferry ferry
)bash";

// zsh runs a file of its own folders as the function's body. A script that is read in any other way only
// defines the function.
constexpr std::string_view kZsh = R"zsh(#compdef ferry
# Completion of ferry for zsh.

_ferry() {
    local word
    local -a found described
    found=("${(@f)$(ferry complete "${(@Q)words[2,CURRENT]}" 2> /dev/null)}")
    if [[ ${words[CURRENT]} == --*=* ]]; then compset -P '--*='; fi
    case $found[-1] in
    (:0) _files ;;
    (:16) _files -/ ;;
    esac
    for word in "${(@)found[1,-2]}"; do
        word=${word//:/\\:}
        described+=("${word/$'\t'/:}")
    done
    _describe -t words word described
}

if [[ $funcstack[1] == _ferry ]]; then
    _ferry "$@"
else
    compdef _ferry ferry
fi
)zsh";

constexpr std::string_view kFish = R"fish(# Completion of ferry for fish.

function __ferry_complete
    set -l words (commandline -opc)
    set -l typed (commandline -ct)
    set -l option (string match -r -- '^--[^=]*=' $typed)
    set -l value (string replace -r -- '^--[^=]*=' '' $typed)
    set -l found (ferry complete $words[2..-1] "$typed" 2>/dev/null)
    or return
    switch "$found[-1]"
        case :0
            set found (__fish_complete_path "$value") ''
        case :16
            set found (__fish_complete_directories "$value" '') ''
    end
    set -e found[-1]
    for word in $found
        printf '%s\n' "$option$word"
    end
end

complete -c ferry -f -a '(__ferry_complete)'
)fish";

/// True: every shell takes the name as one word, without quotes.
bool is_plain(const std::string& name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return is_alphanumeric(c) || std::string_view("._:/@%+-").find(c) != std::string_view::npos;
  });
}

/// The accelerators that a command may name. `name_of` is empty for one without such a name.
template <typename NameOf>
Names names_of_accelerators(const HostFs& host, const NameOf& name_of) {
  const auto inventory = vfio::scan(host);
  if (!inventory) return {};
  const vfio::AcceleratorRules rules = policy::default_accelerator_rules();
  plugin::DeviceNames products(host);
  Names out;
  for (const auto& [address, function] : inventory->functions) {
    const std::string name =
        rules.match(function) || rules.match_by_name(function) ? name_of(function) : std::string();
    if (name.empty()) continue;
    const std::string model = products.find(function.vendor, function.device).value_or(function.ids());
    std::string& text = out[name];
    if (text.find(model) == std::string::npos) text += (text.empty() ? "" : ", ") + model;
  }
  return out;
}

Names addresses(const HostFs& host) {
  return names_of_accelerators(host,
                               [](const vfio::PciFunction& function) { return function.address.text(); });
}

Names devices(const HostFs& host) {
  Names out = addresses(host);
  if (const auto vgpus = host.list("sys/bus/mdev/devices"))
    for (const std::string& uuid : *vgpus) out.emplace(uuid, "mediated device");
  if (const auto advertised = host::read_advertised_resources(host); advertised && *advertised)
    for (const api::AdvertisedResource& resource : (*advertised)->resources)
      out.emplace(resource.name, "resource");
  return out;
}

Names claims(const HostFs& host) {
  Names out;
  if (const auto record = host::load_claim_record(host))
    for (const host::Claim& claim : record->claims) out.emplace(claim.uid, claim.label());
  return out;
}

Names policies(const std::filesystem::path& path) {
  std::error_code fault;
  // Reading a pipe would wait for its writer.
  if (!std::filesystem::is_regular_file(path, fault)) return {};
  Names out;
  if (const auto file = policy::read_policy_file(path, Reading::lenient))
    for (const policy::Policy& one : file->policies) out.emplace(one.name, "");
  return out;
}

/// The value of a path in `values`; empty: it is not there.
std::string path_in(const std::map<std::string, std::string>& values, const std::string& option) {
  const auto at = values.find(option);
  if (at == values.end()) return {};
  return at->second.starts_with("~/") ? value_of(process_environment(), "HOME") + at->second.substr(1)
                                      : at->second;
}

/// The names of host_names(), and those that a shell must quote.
Names all_names(const OptionModel& option, const WordsBefore& before) {
  const auto is_called = [&option](std::string_view name) {
    return std::ranges::find(option.names, name) != option.names.end();
  };
  // A --config with a default names a policy to print.
  if (is_called("--config") && option.value == "NAME" && option.usual.empty())
    return policies(path_in(before.values, "--file"));
  const std::string root = path_in(before.values, "--host-root");
  const HostFs host(root.empty() ? "/" : root);
  const auto number = [](const auto& value) { return value ? std::to_string(*value) : std::string(); };
  if (option.value == "ADDRESS") return addresses(host);
  if (option.value.starts_with("ADDRESS|")) return devices(host);
  if (option.value == "MODEL")
    return names_of_accelerators(host, [](const vfio::PciFunction& function) { return function.ids(); });
  if (option.value == "UID" && option.names.empty()) return claims(host);
  if (is_called("--group"))
    return names_of_accelerators(
        host, [&](const vfio::PciFunction& function) { return number(function.iommu_group); });
  if (is_called("--numa"))
    return names_of_accelerators(
        host, [&](const vfio::PciFunction& function) { return number(function.numa_node); });
  return {};
}

}  // namespace

std::string_view completion_script(const std::string& shell) {
  static const std::map<std::string, std::string_view> kScripts = {
      {"bash", kBash}, {"zsh", kZsh}, {"fish", kFish}};
  return kScripts.at(shell);
}

Names host_names(const OptionModel& option, const WordsBefore& before) {
  Names out;
  for (const auto& [name, description] : all_names(option, before))
    if (is_plain(name)) out.emplace(name, visible_line(description));
  return out;
}

int print_completions(const CommandModel& root, const std::vector<std::string>& words) {
  constexpr unsigned kSeconds = 2;
  (void)std::signal(SIGALRM, [](int /*signal*/) { ::_exit(0); });
  ::alarm(kSeconds);
  const std::string out = completions(root, words, host_names);
  ::alarm(0);
  return std::fwrite(out.data(), 1, out.size(), stdout) == out.size() && std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace ferry::cli
