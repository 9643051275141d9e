package tally

import "crypto/sha256"

// ImportedLedger is the ledger of a cluster that was imported: its UUID
// follows from the cluster's name.
func ImportedLedger(cluster string) [16]byte {
	sum := sha256.Sum256([]byte("muster imported cluster\x00" + cluster))
	var id [16]byte
	copy(id[:], sum[:])
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80 // a UUID of our own making
	return id
}
