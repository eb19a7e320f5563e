// What every program here that a test talks to begins and ends with: one request a line of JSON on stdin, `{ op, … }`, one answer a line on
// stdout, `{ result }` or `{ error }`. Bytes travel in hex. Import it before the reference, which is imported dynamically therefore.

import readline from "node:readline"

// The reference is written for Node 22; on 20 this function of the language is missing.
Promise.withResolvers ??= () => {
	const parts = {}
	parts.promise = new Promise((resolve, reject) => Object.assign(parts, { resolve, reject }))
	return parts
}

export const hex = (bytes) => Buffer.from(bytes).toString("hex")
export const unhex = (text) => new Uint8Array(Buffer.from(text, "hex"))
export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

// A stream that breaks half way ends the reference's process; here it goes on, and the fault is kept.
export function surviveFaults() {
	const faults = []
	for (const event of ["unhandledRejection", "uncaughtException"]) {
		process.on(event, (error) => faults.push(String(error?.stack ?? error)))
	}
	console.trace = () => {}
	return faults
}

// Answers until stdin ends: one request after the other, or all at once, for one may wait for what another one does. The number of a
// request, if it has one, comes back with its answer.
export async function answerRequests(operations, { atOnce = false } = {}) {
	for await (const line of readline.createInterface({ input: process.stdin, crlfDelay: Infinity })) {
		const { op, ...request } = JSON.parse(line)
		const answering = (async () => operations[op](request))()
			.then((result) => ({ result: result ?? null }), (error) => ({ error: String(error.stack) }))
			.then((answer) => process.stdout.write(JSON.stringify({ number: request.number, ...answer }) + "\n"))
		if (!atOnce) {
			await answering
		}
	}
}
