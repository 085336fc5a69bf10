// SPDX-License-Identifier: Apache-2.0
#include "dra/publish/claim_reader_kube.h"

#include <memory>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "kube/api_error.h"
#include "kube/api_path.h"
#include "kube/field_filter.h"

namespace ferry::dra {
namespace {

constexpr const char* kAgain = "the kubelet asks again, until the API server answers";

/// A read that has no answer yet.
struct Reading {
  ClaimReader::Done done;
  kube::ApiClient::Call call = 0;
  kube::Timers::Timer end = {};  ///< of the time for the answer
};

/// All but large fields that are not read. A tenant writes most of them.
kube::FieldChoice read_fields() {
  return {
      .mode = kube::FieldChoice::Mode::all_but,
      .fields = {
          {"metadata", {{"managedFields"}, {"labels"}, {"finalizers"}, {"ownerReferences"}}},
          {"spec"},
          {"status",
           {{"reservedFor"},
            {"devices"},
            {"allocation", {{"nodeSelector"}, {"devices", {{"config", {{"opaque", {{"parameters"}}}}}}}}}}}}};
}

Error meaning_of(Error error) {
  if (error.code == kube::ApiErrc::not_found) error.code = make_error_code(Errc::not_found);
  if (kube::may_mend(error)) {
    error.code = make_error_code(Errc::unreachable);
    if (error.hint.empty()) error.hint = kAgain;
  }
  return error;
}

}  // namespace

void KubeClaimReader::read(const ClaimKey& key, Done done) {
  const kube::ObjectRef object{.kind = kube::kResourceClaims, .space = key.space, .name = key.name};
  const auto reading = std::make_shared<Reading>();
  reading->done = std::move(done);
  reading->call = client_.get(
      object,
      [&timers = timers_, reading](Result<nlohmann::json> claim) {
        timers.cancel(reading->end);
        if (!claim) return reading->done(fail(meaning_of(std::move(claim).error())));
        reading->done(std::move(claim));
      },
      read_fields());
  reading->end = timers_.at(timers_.now() + kLongest, [&client = client_, reading, name = object.text()] {
    client.cancel(reading->call);
    reading->done(fail(
        Errc::unreachable,
        fmt::format("get {}: the API server has not answered for {} s", name, kLongest.count()), kAgain));
  });
}

}  // namespace ferry::dra
