// SPDX-License-Identifier: Apache-2.0
// Inside this room: a version from its manifest, in the folder where it is made ready.
#pragma once

#include <functional>

#include "common/host_fs.h"
#include "common/result.h"
#include "kata-manager/artifact_store.h"
#include "kata-manager/fetch.h"
#include "kata-manager/manifest.h"
#include "kata-manager/registry.h"

namespace ferry {

/// Brings the layers into the store's `blobs`, from what an earlier try left there, and makes of them the
/// folder `staging`, which is not there yet. Nothing of a layer is in it before its digest holds.
Result<> build_version(const HostFs& host, const ArtifactPlaces& places, RegistryClient& registry,
                       const ArtifactManifest& manifest, const FetchRequest& request,
                       const FetchWorld& world);

}  // namespace ferry
