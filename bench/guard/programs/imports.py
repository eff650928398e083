"""Imports much of the standard library: creates code objects and dictionaries, with call stacks that rarely repeat."""

import argparse
import asyncio
import concurrent.futures
import csv
import decimal
import difflib
import email.message
import http.server
import json
import logging.config
import multiprocessing
import pickle
import sqlite3
import statistics
import tarfile
import unittest.mock
import urllib.request
import xml.dom.minidom
import zipfile
