package bpf

import (
	"encoding/binary"
	"encoding/hex"
)

// ServerID is a server ID of an endpoint in connection IDs of QUIC, in the layout of quic_servers.
// The zero value: none.
type ServerID [2]uint64

// String returns the hexadecimal digits.
func (id ServerID) String() string {
	b := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, id[0]), id[1])
	return hex.EncodeToString(b[:min(int(b[len(b)-1]), len(b))])
}

// QUICConfig is a configuration of a service's connection IDs.
type QUICConfig struct {
	Number uint32
	Row    TcQuicConfig
}
