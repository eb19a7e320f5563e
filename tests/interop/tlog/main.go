// Checkpoints, tiles and proofs as Go's own libraries judge them. Commands come on stdin, one a line; each gets one line of an answer,
// "ok …" or "no …":
//
//	folder VKEY PUBLISHER/GENERATION      the checkpoint, each leaf of the bundles through the tiles, and some proofs of consistency
//	proof VKEY LEAF FILE                  a tlog-proof of a leaf, in hexadecimal
//	sign SKEY ORIGIN SIZE ROOT            a checkpoint, signed; answered in hexadecimal
//	cosigned VKEY FILE                    a note with a witness's cosignature
//	cosign SKEY FILE                      a checkpoint's file, cosigned; answered in hexadecimal
package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	fnote "github.com/transparency-dev/formats/note"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

func open(vkey string, data []byte) (tlog.Tree, error) {
	verifier, err := note.NewVerifier(vkey)
	if err != nil {
		return tlog.Tree{}, err
	}
	opened, err := note.Open(data, note.VerifierList(verifier))
	if err != nil {
		return tlog.Tree{}, err
	}
	lines := strings.Split(opened.Text, "\n")
	if len(lines) < 4 || lines[0] != verifier.Name() {
		return tlog.Tree{}, errors.New("no checkpoint of this origin")
	}
	size, err := strconv.ParseInt(lines[1], 10, 64)
	if err != nil {
		return tlog.Tree{}, err
	}
	root, err := tlog.ParseHash(lines[2])
	return tlog.Tree{N: size, Hash: root}, err
}

// folder reads tiles as tlog-tiles lays them out.
type folder string

func (f folder) Height() int { return 8 }

func (f folder) SaveTiles([]tlog.Tile, [][]byte) {}

func (f folder) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	var all [][]byte
	for _, tile := range tiles {
		data, err := f.read(strconv.Itoa(tile.L), tile.N, tile.W)
		if err != nil {
			return nil, err
		}
		if len(data) < tile.W*tlog.HashSize {
			return nil, errors.New("a tile that is cut off")
		}
		all = append(all, data[:tile.W*tlog.HashSize])
	}
	return all, nil
}

func (f folder) read(kind string, n int64, width int) ([]byte, error) {
	path := fmt.Sprintf("%03d", n%1000)
	for n >= 1000 {
		n /= 1000
		path = fmt.Sprintf("x%03d/%s", n%1000, path)
	}
	path = filepath.Join(string(f), "tile", kind, path)
	if width < 256 {
		path += fmt.Sprintf(".p/%d", width)
	}
	return os.ReadFile(path)
}

func (f folder) check(vkey string) (string, error) {
	data, err := os.ReadFile(filepath.Join(string(f), "checkpoint"))
	if err != nil {
		return "", err
	}
	tree, err := open(vkey, data)
	if err != nil {
		return "", err
	}
	reader := tlog.TileHashReader(tree, f)
	for n := int64(0); n*256 < tree.N; n++ {
		width := min(256, tree.N-n*256)
		bundle, err := f.read("entries", n, int(width))
		if err != nil {
			return "", err
		}
		for i := n * 256; i < n*256+width; i++ {
			if len(bundle) < 2 {
				return "", errors.New("a bundle that is cut off")
			}
			length := int(bundle[0])<<8 | int(bundle[1])
			if len(bundle) < 2+length {
				return "", errors.New("a bundle that is cut off")
			}
			leaf := bundle[2 : 2+length]
			bundle = bundle[2+length:]
			proved, err := tlog.ProveRecord(tree.N, i, reader)
			if err != nil {
				return "", err
			}
			if err := tlog.CheckRecord(proved, tree.N, tree.Hash, i, tlog.RecordHash(leaf)); err != nil {
				return "", err
			}
		}
		if len(bundle) != 0 {
			return "", errors.New("a bundle with more than its leaves")
		}
	}
	for old := int64(1); old < tree.N; old = old*3 + 1 {
		root, err := tlog.TreeHash(old, reader)
		if err != nil {
			return "", err
		}
		proved, err := tlog.ProveTree(tree.N, old, reader)
		if err != nil {
			return "", err
		}
		if err := tlog.CheckTree(proved, tree.N, tree.Hash, old, root); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d leaves", tree.N), nil
}

func checkProof(vkey, leaf, file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	head, signed, found := bytes.Cut(data, []byte("\n\n"))
	lines := strings.Split(string(head), "\n")
	if !found || len(lines) < 3 || lines[0] != "c2sp.org/tlog-proof@v1" || !strings.HasPrefix(lines[2], "index ") {
		return "", errors.New("no proof")
	}
	tree, err := open(vkey, signed)
	if err != nil {
		return "", err
	}
	index, err := strconv.ParseInt(strings.TrimPrefix(lines[2], "index "), 10, 64)
	if err != nil {
		return "", err
	}
	raw, err := hex.DecodeString(leaf)
	if err != nil {
		return "", err
	}
	var hashes tlog.RecordProof
	var others [][]byte
	for _, line := range lines[3:] {
		hash, err := tlog.ParseHash(line)
		if err != nil {
			return "", err
		}
		hashes = append(hashes, hash)
		others = append(others, hash[:])
	}
	if err := tlog.CheckRecord(hashes, tree.N, tree.Hash, index, tlog.RecordHash(raw)); err != nil {
		return "", err
	}
	hasher := rfc6962.DefaultHasher
	err = proof.VerifyInclusion(hasher, uint64(index), uint64(tree.N), hasher.HashLeaf(raw), others, tree.Hash[:])
	return fmt.Sprintf("%d of %d", index, tree.N), err
}

func sign(skey, origin, size, root string) (string, error) {
	signer, err := note.NewSigner(skey)
	if err != nil {
		return "", err
	}
	raw, err := hex.DecodeString(root)
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("%s\n%s\n%s\n", origin, size, base64.StdEncoding.EncodeToString(raw))
	signed, err := note.Sign(&note.Note{Text: text}, signer)
	return hex.EncodeToString(signed), err
}

func cosign(skey, file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	signer, err := fnote.NewSignerForCosignatureV1(skey)
	if err != nil {
		return "", err
	}
	text, signatures, _ := bytes.Cut(data, []byte("\n\n"))
	signed, err := note.Sign(&note.Note{Text: string(text) + "\n"}, signer)
	if err != nil {
		return "", err
	}
	_, line, _ := bytes.Cut(signed, []byte("\n\n"))
	return hex.EncodeToString(append(append(append(text, "\n\n"...), signatures...), line...)), nil
}

func cosigned(vkey, file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	verifier, err := fnote.NewVerifierForCosignatureV1(vkey)
	if err != nil {
		return "", err
	}
	opened, err := note.Open(data, note.VerifierList(verifier))
	if err != nil {
		return "", err
	}
	at, err := fnote.CoSigV1Timestamp(opened.Sigs[0])
	return fmt.Sprint(at.Unix()), err
}

func answer(words []string) (string, error) {
	switch {
	case len(words) == 3 && words[0] == "folder":
		return folder(words[2]).check(words[1])
	case len(words) == 4 && words[0] == "proof":
		return checkProof(words[1], words[2], words[3])
	case len(words) == 5 && words[0] == "sign":
		return sign(words[1], words[2], words[3], words[4])
	case len(words) == 3 && words[0] == "cosigned":
		return cosigned(words[1], words[2])
	case len(words) == 3 && words[0] == "cosign":
		return cosign(words[1], words[2])
	}
	return "", errors.New("no such command")
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if said, err := answer(strings.Fields(lines.Text())); err != nil {
			fmt.Println("no", strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Println("ok", said)
		}
	}
}
