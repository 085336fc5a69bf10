// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/classes/pull_secret.h"

#include <array>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "common/config/config_tree.h"

namespace ferry::kata {
namespace {

// ABI: the keys of Secrets of the types kubernetes.io/dockerconfigjson and kubernetes.io/dockercfg.
constexpr std::array kKeys = {".dockerconfigjson", ".dockercfg"};

Error not_there(const std::filesystem::path& place, const std::string& name, const std::string& why) {
  return {
      .code = make_error_code(Errc::invalid_config),
      .message = fmt::format("the Secret {}: {}", name, why),
      .hint = fmt::format("mount it as {}, or put the content of its key {} into a file of that name there",
                          place.string(), kKeys.front())};
}

}  // namespace

Result<std::string> read_pull_secret(const std::filesystem::path& folder, const std::string& name) {
  const auto place = folder / name;
  for (const char* key : kKeys) {
    const auto file = place / key;
    std::error_code error;
    // If the check itself fails, the read below reports the reason.
    if (!std::filesystem::exists(file, error) && !error) continue;
    auto text = read_config_text(file);
    if (!text) return fail(std::move(text).error().during("the Secret " + name));
    if (text->text.find_first_not_of(" \t\r\n") == std::string::npos)
      return fail(not_there(place, name, file.string() + " is empty"));
    return std::move(text->text);
  }
  std::error_code error;
  if (std::filesystem::exists(place, error))
    return fail(
        not_there(place, name, fmt::format("{} has neither {} nor {}", place.string(), kKeys[0], kKeys[1])));
  return fail(not_there(place, name, place.string() + " is not there"));
}

}  // namespace ferry::kata
