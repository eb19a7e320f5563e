// A go-libp2p peer with go-libp2p-pubsub as a process: one request a line of JSON on stdin, `{op, …}`, one answer a line on stdout,
// `{result}` or `{error}`, as the programs beside it in JavaScript. Messages come back as their SHA-256, for they may be large.
package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/libp2p/go-libp2p"
	pubsub "github.com/libp2p/go-libp2p-pubsub"
	pb "github.com/libp2p/go-libp2p-pubsub/pb"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/event"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	"github.com/libp2p/go-libp2p/p2p/security/noise"
	tls "github.com/libp2p/go-libp2p/p2p/security/tls"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
)

const queue = 4096

type request struct {
	Op        string   `json:"op"`
	Listen    []string `json:"listen"`
	Protocols int      `json:"protocols"`
	Tls       bool     `json:"tls"`
	Key       string   `json:"key"`
	Topic     string   `json:"topic"`
	Sign      bool     `json:"sign"`
	Address   string   `json:"address"`
	Data      string   `json:"data"`
	How       string   `json:"how"`
	Speaks    []string `json:"speaks"`
	Tests     bool     `json:"tests"`
}

type node struct {
	host   host.Host
	pubsub *pubsub.PubSub
	topic  *pubsub.Topic
	topics map[string]*pubsub.Topic

	turn       sync.Mutex
	received   []string
	rpcs       int
	tested     int
	announced  []int
	identified map[string]map[string]any
}

func main() {
	n := &node{identified: map[string]map[string]any{}, topics: map[string]*pubsub.Topic{}}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	answers := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var r request
		err := json.Unmarshal(lines.Bytes(), &r)
		var result any
		if err == nil {
			result, err = n.answer(r)
		}
		if err != nil {
			answers.Encode(map[string]any{"error": err.Error()})
		} else {
			answers.Encode(map[string]any{"result": result})
		}
	}
}

func (n *node) answer(r request) (any, error) {
	switch r.Op {
	case "start":
		return n.start(r)
	case "startPubsub":
		return nil, n.startPubsub(r)
	case "dial":
		info, err := peer.AddrInfoFromString(r.Address)
		if err != nil {
			return nil, err
		}
		return nil, n.host.Connect(context.Background(), *info)
	case "publish":
		data, err := hex.DecodeString(r.Data)
		if err != nil {
			return nil, err
		}
		// Without a subscription it goes out by fan-out.
		topic, err := n.join(r.Topic)
		if err != nil {
			return nil, err
		}
		return nil, topic.Publish(context.Background(), data)
	case "endStreams":
		return n.endStreams(r.How), nil
	case "state":
		return n.state(), nil
	}
	return nil, fmt.Errorf("unknown op %q", r.Op)
}

// Start a host without pubsub; with so many further protocols, identify takes more than one message. With TLS it does not speak noise.
func (n *node) start(r request) (any, error) {
	security := libp2p.Security(noise.ID, noise.New)
	if r.Tls {
		security = libp2p.Security(tls.ID, tls.New)
	}
	kinds := map[string]int{"": crypto.Ed25519, "secp256k1": crypto.Secp256k1, "ecdsa": crypto.ECDSA, "rsa": crypto.RSA}
	key, _, err := crypto.GenerateKeyPair(kinds[r.Key], 2048)
	if err != nil {
		return nil, err
	}
	h, err := libp2p.New(
		libp2p.Identity(key),
		libp2p.ListenAddrStrings(r.Listen...),
		libp2p.Transport(tcp.NewTCPTransport),
		security,
		libp2p.Muxer(yamux.ID, yamux.DefaultTransport),
		libp2p.DisableRelay(),
		libp2p.DisableMetrics(),
		libp2p.ResourceManager(&network.NullResourceManager{}),
	)
	if err != nil {
		return nil, err
	}
	for i := range r.Protocols {
		name := fmt.Sprintf("/interop/%d/%s", i, strings.Repeat("x", 64))
		h.SetStreamHandler(protocol.ID(name), func(s network.Stream) { s.Reset() })
	}
	events, err := h.EventBus().Subscribe(new(event.EvtPeerIdentificationCompleted))
	if err != nil {
		return nil, err
	}
	n.host = h
	go func() {
		for e := range events.Out() {
			done := e.(event.EvtPeerIdentificationCompleted)
			observed := ""
			if done.ObservedAddr != nil {
				observed = done.ObservedAddr.String()
			}
			n.turn.Lock()
			n.identified[done.Peer.String()] = map[string]any{"observed": observed, "agent": done.AgentVersion}
			n.turn.Unlock()
		}
	}()
	return nil, nil
}

func (n *node) join(name string) (*pubsub.Topic, error) {
	topic, ok := n.topics[name]
	var err error
	if !ok {
		topic, err = n.pubsub.Join(name)
		n.topics[name] = topic
	}
	return topic, err
}

// Begin with pubsub in a topic, or join one more.
func (n *node) startPubsub(r request) error {
	if n.pubsub != nil {
		return n.subscribe(r.Topic)
	}
	signing := pubsub.StrictNoSign
	// By default it drops what comes faster than 32 messages at a time, and what is published before a mesh has formed goes to nobody.
	options := []pubsub.Option{pubsub.WithValidateQueueSize(queue), pubsub.WithFloodPublish(true), pubsub.WithMessageIdFn(func(m *pb.Message) string {
		id := sha256.Sum256(m.GetData())
		return string(id[:])
	})}
	if r.Sign {
		signing = pubsub.StrictSign
	} else {
		options = append(options, pubsub.WithNoAuthor())
	}
	if len(r.Speaks) > 0 {
		ids := []protocol.ID{}
		for _, id := range r.Speaks {
			ids = append(ids, protocol.ID(id))
		}
		options = append(options, pubsub.WithGossipSubProtocols(ids, pubsub.GossipSubDefaultFeatures))
	}
	if r.Tests {
		options = append(options, pubsub.WithTestExtension(pubsub.TestExtensionConfig{}), pubsub.WithAppSpecificRpcInspector(n.inspect))
	}
	ps, err := pubsub.NewGossipSub(context.Background(), n.host, append(options, pubsub.WithMessageSignaturePolicy(signing))...)
	if err != nil {
		return err
	}
	n.pubsub = ps
	if n.topic, err = n.join(r.Topic); err != nil {
		return err
	}
	return n.subscribe(r.Topic)
}

func (n *node) subscribe(name string) error {
	topic, err := n.join(name)
	if err != nil {
		return err
	}
	messages, err := topic.Subscribe(pubsub.WithBufferSize(queue))
	if err != nil {
		return err
	}
	go func() {
		for {
			message, err := messages.Next(context.Background())
			if err != nil {
				return
			}
			digest := sha256.Sum256(message.Data)
			n.turn.Lock()
			n.received = append(n.received, hex.EncodeToString(digest[:]))
			n.turn.Unlock()
		}
	}()
	return nil
}

// Note what peers say of extensions, which the test extension's own callback does not tell from other RPCs.
func (n *node) inspect(from peer.ID, rpc *pubsub.RPC) error {
	n.turn.Lock()
	defer n.turn.Unlock()
	n.rpcs++
	if rpc.GetControl().GetExtensions() != nil {
		n.announced = append(n.announced, n.rpcs)
	}
	if rpc.TestExtension != nil {
		n.tested++
	}
	return nil
}

// End the pubsub streams that others opened to us, by closing our side as rust-libp2p does ("fin") or by a reset.
func (n *node) endStreams(how string) int {
	ended := 0
	for _, stream := range n.streams() {
		if stream.Stat().Direction == network.DirInbound {
			if how == "fin" {
				stream.CloseRead()
				stream.CloseWrite()
			} else {
				stream.Reset()
			}
			ended++
		}
	}
	return ended
}

// The streams of pubsub, of either side.
func (n *node) streams() []network.Stream {
	found := []network.Stream{}
	for _, connection := range n.host.Network().Conns() {
		for _, stream := range connection.GetStreams() {
			if strings.HasPrefix(string(stream.Protocol()), "/meshsub/") {
				found = append(found, stream)
			}
		}
	}
	return found
}

func (n *node) state() any {
	n.turn.Lock()
	defer n.turn.Unlock()
	subscribers, addresses, spoken := []string{}, []string{}, []string{}
	for _, stream := range n.streams() {
		spoken = append(spoken, string(stream.Protocol()))
	}
	if n.pubsub != nil {
		for _, id := range n.topic.ListPeers() {
			subscribers = append(subscribers, id.String())
		}
	}
	for _, address := range n.host.Addrs() {
		addresses = append(addresses, fmt.Sprintf("%s/p2p/%s", address, n.host.ID()))
	}
	// A copy, because answering happens after the turn is over.
	received, announced := append([]string{}, n.received...), append([]int{}, n.announced...)
	identified := map[string]any{}
	for id, each := range n.identified {
		identified[id] = each
	}
	return map[string]any{
		"addresses": addresses, "subscribers": subscribers, "received": received, "identified": identified,
		"spoken": spoken, "announced": announced, "tested": n.tested,
	}
}
