// SPDX-License-Identifier: Apache-2.0
// Verifies signatures of images in a registry by cosign's own code, as `cosign verify --key KEY --insecure-ignore-tlog` does.
package main

import (
	"context"
	"crypto"
	"fmt"
	"os"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/sigstore/cosign/v2/pkg/cosign"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
)

func verify(key string, images []string) error {
	text, err := os.ReadFile(key)
	if err != nil {
		return err
	}
	public, err := cryptoutils.UnmarshalPEMToPublicKey(text)
	if err != nil {
		return err
	}
	verifier, err := signature.LoadVerifier(public, crypto.SHA256)
	if err != nil {
		return err
	}
	options := &cosign.CheckOpts{SigVerifier: verifier, IgnoreTlog: true, ClaimVerifier: cosign.SimpleClaimVerifier}
	for _, image := range images {
		reference, err := name.ParseReference(image)
		if err != nil {
			return err
		}
		if _, _, err := cosign.VerifyImageSignatures(context.Background(), reference, options); err != nil {
			return fmt.Errorf("%s: %w", image, err)
		}
	}
	return nil
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: cosign-check KEY IMAGE...")
		os.Exit(2)
	}
	if err := verify(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
