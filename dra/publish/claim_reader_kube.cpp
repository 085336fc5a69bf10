// SPDX-License-Identifier: Apache-2.0
#include "dra/publish/claim_reader_kube.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "kube/api_error.h"
#include "kube/api_path.h"
#include "kube/field_filter.h"

namespace ferry::dra {
namespace {

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
    if (error.hint.empty()) error.hint = "the kubelet asks again, until the API server answers";
  }
  return error;
}

}  // namespace

void KubeClaimReader::read(const ClaimKey& key, Done done) {
  client_.get(
      {.kind = kube::kResourceClaims, .space = key.space, .name = key.name},
      [done = std::move(done)](Result<nlohmann::json> claim) {
        if (!claim) return done(fail(meaning_of(std::move(claim).error())));
        done(std::move(claim));
      },
      read_fields());
}

}  // namespace ferry::dra
