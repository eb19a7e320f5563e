// Chromium as a process: it bundles the page, serves it, and does in its tabs what requests ask for.

import fs from "node:fs"
import http from "node:http"
import os from "node:os"
import path from "node:path"
import { fileURLToPath } from "node:url"

import * as esbuild from "esbuild"
import { chromium } from "playwright-core"

import { settings } from "../../gossiplog/testnet/browser/bundle.mjs"
import { answerRequests, sleep } from "../interop/process.mjs"

const folder = path.dirname(fileURLToPath(import.meta.url))
const EXECUTABLE = process.env.CHROMIUM ?? "/usr/bin/chromium"
const FLAGS = [
	"--no-sandbox",
	"--disable-gpu",
	"--disable-quic",
	"--no-first-run",
	"--disable-background-networking",
	"--disable-component-update",
	"--disable-sync",
]

const { outputFiles } = await esbuild.build({
	...settings(path.join(folder, "page.mjs"), [path.join(folder, "..", "interop")]),
	write: false,
})
const files = { "/": ["text/html", fs.readFileSync(path.join(folder, "page.html"))], "/page.js": ["text/javascript", outputFiles[0].contents] }
const server = http.createServer((request, response) => {
	const [type, body] = files[request.url] ?? ["text/plain", ""]
	response.writeHead(body === "" ? 404 : 200, { "content-type": `${type}; charset=utf-8` }).end(body)
})
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve))
const origin = `http://127.0.0.1:${server.address().port}`

const profile = fs.mkdtempSync(path.join(os.tmpdir(), "gossiplog-browser-"))
const context = await chromium.launchPersistentContext(profile, { executablePath: EXECUTABLE, headless: true, args: FLAGS })
const tabs = new Map()
const faults = []

const operations = {
	async origin() {
		return origin
	},

	async tab({ tab }) {
		const page = await context.newPage()
		await page.setViewportSize({ width: 820, height: 640 })
		page.on("pageerror", (error) => faults.push(`${tab}: ${error.stack ?? error}`))
		tabs.set(tab, page)
		await page.goto(origin)
		await page.waitForSelector("body[data-ready]")
	},

	async reload({ tab }) {
		await tabs.get(tab).reload()
		await tabs.get(tab).waitForSelector("body[data-ready]")
	},

	// Calls a function of the page's `replica`.
	async call({ tab, name, argument = {} }) {
		return await tabs.get(tab).evaluate(([name, argument]) => window.replica[name](argument), [name, argument])
	},

	// Answers when the tab's root is this one, or after a while with what there is.
	async until({ tab, hash, ms }) {
		const end = Date.now() + ms
		// Each look goes through the whole log, and takes the tab's time.
		for (let pause = 50; ; pause = Math.min(1.2 * pause, 2_000)) {
			const state = await operations.call({ tab, name: "state" })
			if (state.hash === hash || Date.now() > end) {
				return state
			}
			await sleep(pause)
		}
	},

	async screenshot({ tab, file }) {
		await tabs.get(tab).screenshot({ path: file })
	},

	async faults() {
		return faults
	},

	async version() {
		return context.browser()?.version() ?? null
	},
}

await answerRequests(operations)
await context.close()
server.close()
fs.rmSync(profile, { recursive: true, force: true })
process.exit(0)
