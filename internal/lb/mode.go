package lb

import "fmt"

// Mode is how packets are translated on their way to an endpoint. The numbers are those of the REST contract.
type Mode uint8

// The modes of the contract.
const (
	ModeDefault    Mode = 0 // destination NAT; the client's address is kept
	ModeOneArm     Mode = 1 // the source becomes the load balancer's address towards the endpoint
	ModeFullNAT    Mode = 2 // the source becomes the VIP
	ModeDSR        Mode = 3 // nothing changes but the MAC address; endpoints have the VIP, and answer clients directly
	ModeFullProxy  Mode = 4
	ModeHostOneArm Mode = 5 // as onearm; the VIP is 0.0.0.0 or ::, and stands for every local address
)

func modes() []Mode {
	return []Mode{ModeDefault, ModeOneArm, ModeFullNAT, ModeDSR, ModeFullProxy, ModeHostOneArm}
}
func availableModes() []Mode {
	return []Mode{ModeDefault, ModeOneArm, ModeFullNAT, ModeDSR, ModeHostOneArm}
}

// TranslatesSource tells whether endpoints see an address of the load balancer instead of the client's.
func (m Mode) TranslatesSource() bool {
	return m == ModeOneArm || m == ModeFullNAT || m == ModeHostOneArm
}

// String is the word of the contract.
func (m Mode) String() string {
	switch m {
	case ModeDefault:
		return "default"
	case ModeOneArm:
		return "onearm"
	case ModeFullNAT:
		return "fullnat"
	case ModeDSR:
		return "dsr"
	case ModeFullProxy:
		return "fullproxy"
	case ModeHostOneArm:
		return "hostonearm"
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// ParseMode takes the word or the number of the contract.
func ParseMode(s string) (Mode, error) { return parseWord(FieldMode, s, modes()) }
