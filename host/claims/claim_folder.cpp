// SPDX-License-Identifier: Apache-2.0
#include "host/claims/claim_folder.h"

#include <optional>

namespace ferry::host {

Result<> ClaimFolder::write(const api::ClaimRequest& claim, std::span<const api::PreparedDevice> devices) {
  for (const api::ClaimFile& file : api::claim_files(claim, devices, metadata_)) {
    const auto present = host_.read_file(file.path, HostFs::Links::refused);
    if (present && *present == file.text) continue;
    // In its container hostd cannot give a new file the owner of the old one.
    if (present || !is_gone(present.error()))
      if (auto removed = host_.remove_file(file.path); !removed) return removed;
    if (auto written = host_.write_file(file.path, file.text); !written) return written;
  }
  return {};
}

Result<> ClaimFolder::remove(const std::function<bool(const std::string&)>& over) {
  using ClaimOf = std::optional<std::string> (*)(std::string_view);
  const std::pair<std::filesystem::path, ClaimOf> folders[] = {{api::kCdiFolder, api::claim_of_cdi_file},
                                                               {metadata_, api::claim_of_metadata_file}};
  for (const auto& [folder, claim_of] : folders) {
    const auto names = host_.list(folder);
    if (!names && is_gone(names.error())) continue;
    if (!names) return fail(names.error());
    for (const std::string& file : *names) {
      // A writer that was killed leaves ".NAME.8 digits".
      const auto uid = claim_of(file.starts_with('.') ? file.substr(1, file.rfind('.') - 1) : file);
      if (!uid || !over(*uid)) continue;
      if (auto removed = host_.remove_file(folder / file); !removed) return removed;
    }
  }
  return {};
}

}  // namespace ferry::host
