// SPDX-License-Identifier: Apache-2.0
#include "dra/publish/lost_claims.h"

#include <utility>

#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "common/text/json.h"

namespace ferry::dra {

LostClaims::LostClaims(ClaimReader& reader, kube::Timers& timers, Settings settings)
    : reader_(reader), timers_(timers), settings_(std::move(settings)) {}

LostClaims::~LostClaims() {
  *alive_ = false;
  timers_.cancel(timer_);
}

std::vector<ClaimKey> LostClaims::missing() const {
  std::vector<ClaimKey> out;
  for (const ClaimRecord& claim : settings_.checkpoint().claims)
    if (!in_server_.contains(claim.uid))
      out.push_back({.uid = claim.uid, .space = claim.space, .name = claim.name});
  return out;
}

void LostClaims::look(std::set<std::string> in_server) {
  in_server_ = std::move(in_server);
  if (missing().empty()) {
    if (std::exchange(waits_, false)) timers_.cancel(timer_);
    return;
  }
  if (unread_ > 0 || std::exchange(waits_, true)) return;
  timer_ = timers_.at(timers_.now() + kPatience, [this] {
    waits_ = false;
    read_all();
  });
}

void LostClaims::read_all() {
  gone_.clear();
  const std::vector<ClaimKey> claims = missing();
  unread_ = claims.size();
  for (const ClaimKey& key : claims)
    reader_.read(key, [this, key, alive = alive_](const Result<nlohmann::json>& claim) {
      if (!*alive) return;
      read(key, claim ? Result<std::string>(text_at(json_at(*claim, "metadata"), "uid"))
                      : Result<std::string>(fail(Error(claim.error()))));
    });
}

void LostClaims::read(const ClaimKey& key, const Result<std::string>& uid) {
  const bool is_another = uid && !uid->empty() && *uid != key.uid;
  if (is_another || (!uid && uid.error().code == Errc::not_found)) {
    spdlog::warn("claim {}/{} with UID {} no longer exists, and its devices are not given back: undone now",
                 key.space, key.name, key.uid);
    gone_.insert(key.uid);
  }
  if (--unread_ > 0) return;
  if (!gone_.empty()) {
    std::set<std::string> existing;
    for (const ClaimRecord& claim : settings_.checkpoint().claims)
      if (!gone_.contains(claim.uid)) existing.insert(claim.uid);
    settings_.unprepare_all_but(existing);
  }
  // A claim that cannot be undone yet is looked at again.
  look(std::move(in_server_));
}

}  // namespace ferry::dra
