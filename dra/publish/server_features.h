// SPDX-License-Identifier: Apache-2.0
// Finds out which fields of ResourceSlices the API server stores: a dry-run create of a slice that has all of
// them (docs/adr/0035). The server must have resource.k8s.io/v1.
#pragma once

#include <functional>
#include <optional>

#include "common/pinned.h"
#include "common/result.h"
#include "dra/slices/resource_slice.h"
#include "kube/api_transport.h"

namespace ferry::dra {

/// The features by the server's answer to the trial. Errc::unsupported: the server has no resource.k8s.io/v1,
/// with a hint. Errors: those of the transport, of kube::error_of() and of features_of_probe().
Result<ServerFeatures> features_of_answer(const Result<kube::ApiReply>& reply);

/// Asks the server, once for each begin(). For one thread.
class FeatureProbe : Pinned {
 public:
  using Done = std::function<void(Result<ServerFeatures>)>;

  /// The transport must outlive this.
  explicit FeatureProbe(kube::ApiTransport& transport) : transport_(transport) {}
  ~FeatureProbe();

  /// Begins a trial; none may be under way. `done` runs once, never within this call, and not after the end
  /// of this object.
  void begin(const SliceOwner& owner, Done done);
  bool is_under_way() const { return call_.has_value(); }

 private:
  kube::ApiTransport& transport_;
  std::optional<kube::ApiTransport::Call> call_;
};

}  // namespace ferry::dra
